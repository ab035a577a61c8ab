"""The connection to Ray, and the token that Ray asks of everyone who talks to it. No other module connects.

Whoever can talk to a Ray cluster can run any program there, so Ray compares a token with each call (`RAY_AUTH_MODE=token`,
https://docs.ray.io/en/latest/ray-security/token-auth.html). Ray looks for it in `RAY_AUTH_TOKEN`, in the file that
`RAY_AUTH_TOKEN_PATH` names, and in `~/.ray/auth_token`, in this order. Ray would write that file for everyone to read; it is
made here on first use, for its owner alone.
"""

import contextlib
import logging
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from drag_ray.config import BaseConfig
from drag_ray.errors import ConfigError
from drag_ray.messages import FORMAT_VARIABLE
from drag_ray.storage.file_access import open_own_folder
from drag_ray.usage_reports import choose_switches

_logger = logging.getLogger(__name__)

_TOKEN_VARIABLE = "RAY_AUTH_TOKEN"
_TOKEN_PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"
_TOKEN_BYTES = 32


def name_token_source() -> str:
    """The place where Ray finds the token: a variable's name or a file's."""
    return _TOKEN_VARIABLE if os.environ.get(_TOKEN_VARIABLE) else str(locate_token())


def locate_token() -> Path:
    """The file in which Ray looks for the token when `RAY_AUTH_TOKEN` is not set."""
    given = os.environ.get(_TOKEN_PATH_VARIABLE)
    return Path(given) if given else Path.home() / ".ray" / "auth_token"


def ensure_token(may_create: bool) -> None:
    """Make sure that there is a token, and that its owner alone can read `~/.ray/auth_token`. Raises ConfigError where there is
    no token, its file cannot be read or written, or it holds none. `may_create`: write a new token to `~/.ray/auth_token` if
    there is none; a cluster that runs already has its own."""
    if os.environ.get(_TOKEN_VARIABLE):
        return
    path = locate_token()
    try:
        if not os.environ.get(_TOKEN_PATH_VARIABLE):
            if may_create:
                _create_token(path)
            _close_to_others(path)
        if not path.read_text(encoding="utf-8").strip():
            raise ConfigError(f"{path}: holds no token. Remove the file, or write the cluster's token into it.")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file, so there is no token for the Ray cluster. Copy the file from the machine that started "
            f"the cluster (`ray get-auth-token` prints it there), or set {_TOKEN_VARIABLE}."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: Ray's token cannot be read or written ({error}). Make the file yours, or remove it."
        ) from error


def _create_token(path: Path) -> None:
    """Write a new token, whole at once: of two processes that come first together, one writes and both read the same."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as scratch:  # for the owner alone
        scratch.write(secrets.token_hex(_TOKEN_BYTES))
        scratch.flush()
        with contextlib.suppress(FileExistsError):
            os.link(scratch.name, path)


def _close_to_others(path: Path) -> None:
    status = path.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        path.chmod(0o600)


class ClusterConfig(BaseConfig):
    """Options of the connection to Ray."""

    address: str = ""
    """a running cluster's address, `auto` to find one; empty starts a local Ray (or uses the submitted job's cluster)"""
    num_cpus: int = 0
    """CPUs of a local Ray; 0 takes all"""


def is_submitted_job() -> bool:
    """True inside a driver that `ray job submit` started."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def is_connected() -> bool:
    """True if this process is connected to a Ray, whoever did that."""
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


_ENVIRONMENT = {
    # Ray's print patch makes `datasets` disassemble every function that it hashes into the log.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # A submitted job may bring a runtime environment of its own; ours keeps the values that it set.
    "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
    # What Ray logs of an error, more than a thousand lines, is in what it raises too, and the stages say that in a sentence.
    "RAY_DATA_LOG_LEVEL": "CRITICAL",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}
SERVING_ENVIRONMENT = {
    # Ray Serve's proxy asks this function what to wrap itself in.
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "drag_ray.serve.ingress.proxy.build_middlewares",
    # Engines listen for themselves, and answer in the thread that listens; the proxy passes requests on (`serve.ingress.relay`).
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
"""What Ray Serve's processes need. Where a cluster starts them by itself, as on Kubernetes, its files have to say so."""
_WORKER_ENVIRONMENT = {
    # What the stages print is enough; engines and trainers speak up when something is wrong.
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "DATASETS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    FORMAT_VARIABLE: "text",
    "DS_LOG_LEVEL": "error",
    "RAY_SERVE_SLOW_STARTUP_WARNING_S": "600",  # an engine takes a minute and more, which is said before
    **SERVING_ENVIRONMENT,
}
"""Defaults for the processes that Ray starts. A variable that is set where the job starts goes before."""


@contextlib.contextmanager
def connect(config: ClusterConfig) -> Generator[None]:
    """Connect to Ray, print the dashboard's address, and disconnect at the end.

    A local Ray listens on the loopback address alone, and answers nobody without this user's token. Raises ConfigError where no
    Ray answers at the configured address, or not to this user's token, or a local one does not start.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Without an address Ray would look for a cluster that was once started here, and wait for one that is gone.
    address = config.address or ("auto" if is_submitted_job() else "local")
    with require_token(), _stay_on_loopback() if address == "local" else contextlib.nullcontext():
        dashboard = _start(config) if address == "local" else _join(config, address)
        if dashboard:
            _logger.info(f"Ray dashboard: http://{dashboard} (asks for the token in {name_token_source()})")
        import ray

        try:
            yield
        finally:
            ray.shutdown()


def _start(config: ClusterConfig) -> str | None:
    """Start a Ray on this machine, for this driver, and return the address of its dashboard."""
    ensure_token(may_create=True)
    options: dict[str, Any] = {"num_cpus": config.num_cpus or None, "include_dashboard": True}
    if "RAY_TMPDIR" not in os.environ:  # Ray opens its own folder, with logs and rows that have no room in memory, to everyone
        options["_temp_dir"] = str(open_own_folder(Path(tempfile.gettempdir())) / "ray")
    try:
        return _init_ray("local", **options)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no Ray could be started on this machine: {error}") from error


def _join(config: ClusterConfig, address: str) -> str | None:
    """Connect to a Ray that runs already, and return the address of its dashboard, if it has one."""
    ensure_token(may_create=False)
    host, _, port = address.rpartition(":")
    if port.isdecimal() and not _is_listened_on(host.rpartition("/")[2], int(port)):  # Ray would try for minutes
        raise ConfigError(
            f"cluster.address {config.address!r}: nothing listens there. "
            "Start a Ray with `ray start --head`, or leave the option empty."
        )
    try:
        return _init_ray(address)
    except (ConnectionError, ValueError) as error:
        raise ConfigError(
            f"cluster.address {config.address!r}: no Ray answers there, or not to the token in {name_token_source()} ({error}). "
            "Copy the token from the machine that started the cluster, where `ray get-auth-token` prints it, or name none."
        ) from error


def _init_ray(address: str, **options: Any) -> str | None:
    import ray

    context = ray.init(
        address=address,
        logging_level=logging.WARNING,
        ignore_reinit_error=True,
        runtime_env={"env_vars": build_worker_environment(os.environ)},
        **options,
    )
    return context.dashboard_url


def build_worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the processes that Ray starts: what is set where the job starts goes before the defaults."""
    return {name: environment.get(name, value) for name, value in _WORKER_ENVIRONMENT.items()} | choose_switches(environment)


@contextlib.contextmanager
def _set_variable(name: str, value: str) -> Generator[None]:
    """An environment variable for this process and those that it starts, put back at the end."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


@contextlib.contextmanager
def require_token() -> Generator[None]:
    """Show a token to Ray, and have a Ray that is started here ask for it: whoever talks to Ray can run any program."""
    with _set_variable("RAY_AUTH_MODE", "token"):
        from ray._raylet import Config  # pyright: ignore[reportAttributeAccessIssue]

        Config.initialize("")  # Ray has read the variable once, if it was imported before
        yield


@contextlib.contextmanager
def _stay_on_loopback() -> Generator[None]:
    """Keep the ports of a local Ray to this machine, by Ray's own switch for machines that take part in no cluster."""
    with _set_variable("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"):
        from ray._private import ray_constants

        before = ray_constants.ENABLE_RAY_CLUSTER
        ray_constants.ENABLE_RAY_CLUSTER = False  # made of the variable when Ray is imported, which may have been before
        try:
            yield
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = before


def _is_listened_on(host: str, port: int) -> bool:
    """True if a program accepts connections there."""
    try:
        socket.create_connection((host.strip("[]"), port), timeout=5).close()
    except (OSError, OverflowError):
        return False
    return True
