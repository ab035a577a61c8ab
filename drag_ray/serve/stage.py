"""The serve stage: Ray Serve keeps replicas of vLLM's application running behind one address."""

import errno
import json
import logging
import socket
import time
import urllib.error
from collections.abc import Callable
from importlib.util import find_spec

from ray import serve
from ray.serve.schema import LoggingConfig

from drag_ray.cluster.interruption import wait_for_a_signal
from drag_ray.cluster.nodes import list_nodes, takes_gpus
from drag_ray.errors import ServeError
from drag_ray.extras import explain_missing
from drag_ray.serve.client import open_directly
from drag_ray.serve.config import ServeSections
from drag_ray.serve.ingress.key import KEY_VARIABLE, read_keys
from drag_ray.serve.ingress.proxy import LIVE_PATH
from drag_ray.serve.replica import APP_NAME, build_application
from drag_ray.serve.settings import AppSettings, build_app_settings
from drag_ray.stage_runs.inputs import Inputs

_logger = logging.getLogger(__name__)

_READY_TIMEOUT_S = 600.0
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def run(sections: ServeSections, inputs: Inputs, block: bool = True, start_ray: Callable[[], object] = lambda: None) -> str:
    """Serve the base model and its adapters until Ctrl-C, or leave them running when `block` is False: `ray.serve.shutdown()`
    ends them. Returns the endpoint's address, without a path. `start_ray` is called once all that can be wrong without Ray has
    been looked at.

    Raises ConfigError where the model is behind an endpoint, its chat template does not show the tools of an agent, the index has
    no vectors of its pages and these are to be searched, or the model that is to order pages anew is none; ServeError where other
    machines are let in without a key, the port is in use, an adapter does not fit the base model (all before an engine starts),
    or the endpoint does not come up; SearchIndexError and ArtifactError where the run's index is of another layout, unfinished or
    damaged; MissingPackageError where vLLM is not installed, and there is no other machine."""
    sections.check()
    host, port = sections.serve.host, sections.serve.port
    keys = read_keys(sections.serve)
    check_port_is_free(host, port)
    settings = build_app_settings(sections, inputs, keys)
    url = build_url(host, port)
    start_ray()
    _check_packages()
    try:
        _deploy(settings)
        wait_until_ready(url, _READY_TIMEOUT_S)
        _print_usage(url, settings)
        if block:
            wait_for_a_signal()
    except BaseException:
        serve.shutdown()
        raise
    if block:
        _logger.info("shutting down")
        serve.shutdown()
    return url


def _check_packages() -> None:
    """Refuse to start without vLLM where this machine is all that there is: Ray Serve would try, and not say what is missing."""
    if len(list_nodes()) > 1:
        return
    with explain_missing():
        if find_spec("vllm") is None:
            raise ModuleNotFoundError(name="vllm")


def build(sections: ServeSections, inputs: Inputs) -> serve.Application:
    """The application that `run` deploys, for who deploys it otherwise. Errors are those of `run` before Ray is asked."""
    sections.check()
    settings = build_app_settings(sections, inputs, read_keys(sections.serve))
    return build_application(settings, takes_gpus(settings.serve.device))


def _deploy(settings: AppSettings) -> None:
    config, use_gpu = settings.serve, takes_gpus(settings.serve.device)
    _logger.info(f"starting {max(1, config.num_replicas)} engine(s) on {'GPU' if use_gpu else 'CPU'}, about a minute")
    # Ray Serve's own processes only warn.
    serve.start(http_options={"host": config.host, "port": config.port}, logging_config=LoggingConfig(log_level="WARNING"))
    try:
        serve.run(build_application(settings, use_gpu), name=APP_NAME, route_prefix="/")
    except RuntimeError as error:
        raise ServeError(
            f"the engine did not start: {error}\nIts log is in the Ray dashboard under Serve. "
            "If memory ran out, lower engine.max_model_len or engine.max_num_seqs."
        ) from error


def _print_usage(url: str, settings: AppSettings) -> None:
    names = [settings.serve.served_name, *settings.adapters]
    _logger.info(f"serving {', '.join(names)} at {url}/v1")
    _logger.info(build_curl_line(url, names[-1], bool(settings.keys)))
    _logger.info(settings.parsers.describe())
    if settings.index_dir:
        _logger.info(f'drag-ray search "your question" --url {url}')
    _logger.info("Ctrl-C ends it")


def build_url(host: str, port: int) -> str:
    """The address to call, without a path; an endpoint that listens everywhere is called on the loopback address."""
    address = _EVERY_ADDRESS.get(host, host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def check_port_is_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on. Raises ServeError where the port is in use, or the host is not an address of
    this machine."""
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
    before this one. Raises ServeError where it does not within `timeout_s` seconds; says what it answered last."""
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
