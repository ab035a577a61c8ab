"""An endpoint seen from outside: its address, its port, its adapters, and whether it answers."""

import errno
import json
import socket
import time
import urllib.error
from pathlib import Path

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord, read_record
from drag_ray.corpus import page_images, question_images
from drag_ray.engine.models.adapter import check_adapter_fits, check_adapter_writes, read_base_model, read_rank
from drag_ray.errors import DataError, ServeError, TrainError
from drag_ray.finetune.outcome import MERGED_DIR_NAME, TUNED_NAME, find_adapter
from drag_ray.serve.access.key import KEY_VARIABLE
from drag_ray.serve.client import open_directly
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.proxy import LIVE_PATH
from drag_ray.stage_runs.damage import refuse_damage
from drag_ray.storage.artifacts import require_manifest

_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def build_url(host: str, port: int) -> str:
    """The address to call, without a path; an endpoint that listens everywhere is called on the loopback address."""
    address = _EVERY_ADDRESS.get(host, host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def resolve_adapters(config: ServeConfig, finetune_dir: Path | None) -> dict[str, Path]:
    """Adapter folders by the name that requests use; without any configured, the finetune stage's own as `tuned`.

    Raises:
        ServeError: an adapter has the name of the base model.
        DamageError: the finetune stage's own is not what was written.
    """
    adapters = {name: Path(path).resolve() for name, _, path in (entry.partition("=") for entry in config.adapters)}
    if not config.adapters and finetune_dir:
        refuse_damage(finetune_dir, whole=True, but=(MERGED_DIR_NAME,))
        trained = find_adapter(finetune_dir)
        if trained:
            adapters[TUNED_NAME] = trained.resolve()
    if config.served_name in adapters:
        raise ServeError(
            f"serve.adapters: {config.served_name!r} is the name of the base model. "
            "Choose another name for the adapter, or another serve.served_name."
        )
    return adapters


def resolve_index(index_dir: Path | None) -> str:
    """The search index of the run's index stage, absolute; empty where that was never started.

    Raises:
        ArtifactError: the stage has not finished.
        DamageError: it is not what was written.
    """
    if index_dir is None:
        return ""
    require_manifest(index_dir)
    refuse_damage(index_dir, whole=True, but=(page_images.DIR_NAME, question_images.DIR_NAME))
    return str((index_dir / "search_index").resolve())


def resolve_adapter_dirs(config: ServeConfig) -> tuple[str, ...]:
    """The folders from which adapters may be loaded at run time, as paths that hold no symbolic link.

    Raises:
        ServeError: one is no folder.
    """
    for folder in config.adapter_dirs:
        if not folder.is_dir():
            raise ServeError(f"serve.adapter_dirs: {str(folder)!r} is no folder. Make it, or name another.")
    return tuple(str(folder.resolve()) for folder in config.adapter_dirs)


def read_adapters(adapters: dict[str, Path], base_dir: str, model: str, host: AgentConfig) -> dict[str, AgentRecord]:
    """Agent records of the adapters that have one.

    What cannot be served is refused here, while that costs little, before an engine starts: adapters of another base model,
    broken ones, reward models, and those that say in no readable way how they are asked.

    Args:
        host: the endpoint's own agent.

    Raises:
        ServeError: names the adapter, its base model and the one to be served.
    """
    base = read_base_model(base_dir, name=model)
    records: dict[str, AgentRecord] = {}
    for name, adapter_dir in adapters.items():
        try:
            check_adapter_writes(adapter_dir)
            check_adapter_fits(base, adapter_dir)
            if record := read_record(adapter_dir, host):
                records[name] = record
        except (TrainError, DataError) as error:
            raise ServeError(f"serve.adapters: {name!r}: {error}") from error
    return records


def compute_max_lora_rank(config: ServeConfig, adapters: dict[str, Path]) -> int:
    """The smallest rank that vLLM knows and that every adapter fits into.

    Raises:
        ServeError: the rank is above vLLM's highest, or above the configured one.
    """
    highest = max((read_rank(path) for path in adapters.values()), default=0)
    wanted = config.max_lora_rank or max(16, highest)
    if highest > wanted:
        raise ServeError(f"serve.max_lora_rank is {wanted}, and an adapter has rank {highest}. Raise it, or leave it at 0.")
    fitting = [rank for rank in _VLLM_RANKS if rank >= wanted]
    if not fitting:
        raise ServeError(f"an adapter rank of {wanted} was asked for; vLLM serves ranks up to {_VLLM_RANKS[-1]}.")
    return fitting[0]


def check_port_is_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on.

    Raises:
        ServeError: the port is in use, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was in use a moment ago is free
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ServeError(
                    f"port {port} on {host} is in use. Stop what listens there, or choose another with --serve.port."
                ) from None
            raise ServeError(f"serve.host {host!r}, port {port}: cannot be listened on ({error}).") from None


def wait_until_ready(url: str, timeout_s: float) -> None:
    """Return as soon as the endpoint listens, whose engines run already.

    It asks for what is answered without an engine: where clients wait for the endpoint to start, their requests are all there
    before this one.

    Raises:
        ServeError: it does not within `timeout_s` seconds; says what it answered last.
    """
    deadline = time.monotonic() + timeout_s
    last = "nothing"
    while time.monotonic() < deadline:
        try:
            with open_directly(f"{url}{LIVE_PATH}", 5):
                return
        except (urllib.error.URLError, OSError) as error:
            last = str(error)
        time.sleep(0.5)
    raise ServeError(f"{url} did not answer within {timeout_s:g} s (last: {last}). The replica's log is in the Ray dashboard.")


def build_curl_line(url: str, model: str, has_key: bool = False) -> str:
    """A command that asks the endpoint something, to be pasted into a shell that has the key in its environment."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32})
    authorization = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if has_key else ""
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{authorization} -d '{body}'"
