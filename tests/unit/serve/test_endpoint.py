import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import find_port
from web_servers import Reply, WebServer, reply, serve

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.nodes import NodeResources
from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.errors import ConfigError, MissingPackageError, ServeError
from drag_ray.search.searcher import Searcher
from drag_ray.serve import stage
from drag_ray.serve.client import open_directly
from drag_ray.serve.config import ServeConfig, ServedRerankConfig, ServeSections
from drag_ray.serve.stage import build_curl_line, build_url, check_port_is_free, wait_until_ready
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import Identity


def test_a_taken_port_is_named_with_its_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=rf"port {port} on 127.0.0.1 is in use.*--serve.port"):
            check_port_is_free("127.0.0.1", port)
    check_port_is_free("127.0.0.1", port)


def test_a_host_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(ServeError, match=r"serve.host '203.0.113.7'"):
        check_port_is_free("203.0.113.7", 8000)


@pytest.fixture
def server() -> Iterator[WebServer]:
    with serve() as server:
        yield server


def answer_from(ready_at: float) -> Reply:
    """Answers as an endpoint whose places in the queue are all taken until then."""
    return lambda connection, path: reply(status="200 OK" if time.monotonic() >= ready_at else "429 Busy")(connection, path)


@pytest.mark.seconds
def test_waiting_ends_when_the_endpoint_listens_whoever_waits_for_its_engine(server: WebServer) -> None:
    ready_at = time.monotonic() + 0.6
    server.replies["/live"] = answer_from(ready_at)
    wait_until_ready(f"http://127.0.0.1:{server.port}", 5.0)
    assert time.monotonic() >= ready_at


def test_waiting_gives_up_and_says_what_was_answered(server: WebServer) -> None:
    server.replies["/live"] = answer_from(time.monotonic() + 60)
    with pytest.raises(ServeError, match=r"did not answer within 0.2 s .*429"):
        wait_until_ready(f"http://127.0.0.1:{server.port}", 0.2)


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:80"), ("::", "http://[::1]:80"), ("::1", "http://[::1]:80"), ("h", "http://h:80")],
)
def test_an_endpoint_that_listens_everywhere_is_called_on_the_loopback_address(host: str, url: str) -> None:
    assert build_url(host, 80) == url


def test_the_command_to_paste_takes_the_key_from_the_environment() -> None:
    assert "Bearer" not in build_curl_line("http://h:1", "base")
    assert '"Authorization: Bearer $DRAG_RAY_API_KEY"' in build_curl_line("http://h:1", "base", has_key=True)


def test_a_proxy_of_the_environment_does_not_see_the_key(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.replies["/live"] = reply()
    with open_directly(f"http://127.0.0.1:{server.port}/live", 5) as response:
        assert response.status == 200


def test_fewer_engines_at_most_than_at_least_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_replicas 1 is below num_replicas 2"):
        ServeConfig(num_replicas=2, max_replicas=1)


def test_a_model_that_is_served_elsewhere_is_not_served_again() -> None:
    engine = EngineConfig(backend="openai", model="large", endpoint=EndpointConfig(address="http://a/v1"))
    with pytest.raises(ConfigError, match=r"'large' is served at http://a/v1 already"):
        ServeSections(AgentConfig(), engine, ServeConfig()).check()


@pytest.mark.seconds
def test_a_model_that_orders_nothing_is_refused_before_an_engine_starts(searcher: Searcher, tmp_path: Path) -> None:
    with StageFolder(tmp_path / "index", Identity("index", {}, {})) as index:
        shutil.copytree(searcher.index_dir, index.path / "search_index")
        index.finish({})
    settings = ServeConfig(port=find_port(), rerank=ServedRerankConfig(model=str(tmp_path)))
    inputs = Inputs({"finetune": None, "index": tmp_path / "index", "embed": None})
    with pytest.raises(ConfigError, match=r"rerank\.model .* cannot be read as a model"):
        stage.run(ServeSections(AgentConfig(), EngineConfig(), settings), inputs)


@pytest.mark.seconds
def test_where_this_machine_is_all_there_is_a_start_without_vllm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "list_nodes", lambda: [NodeResources(cpus=2, gpus=0)])
    monkeypatch.setitem(sys.modules, "vllm", None)
    sections = ServeSections(AgentConfig(), EngineConfig(), ServeConfig(port=find_port()))
    with pytest.raises(MissingPackageError, match=r"'vllm' is not installed.*drag-ray\[cpu\].*drag-ray\[gpu\]"):
        stage.run(sections, Inputs({"finetune": None, "index": None}), block=False)
