import http.server
import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from ports import find_port
from safetensors.torch import save_file

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.nodes import NodeResources
from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.engine.models.adapter import read_base_model, write_base_model
from drag_ray.errors import ConfigError, DamageError, MissingPackageError, ServeError
from drag_ray.search.config import RerankConfig
from drag_ray.search.searcher import Searcher
from drag_ray.serve import stage
from drag_ray.serve.adapters.adapter_files import compute_max_lora_rank, read_adapters, resolve_adapter_dirs, resolve_adapters
from drag_ray.serve.client import open_directly
from drag_ray.serve.config import ServeConfig, ServeSections
from drag_ray.serve.stage import build_curl_line, build_url, check_port_is_free, wait_until_ready
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import Identity


def _make_adapter(folder: Path, rank: int = 8) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 16}))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    weights = {name: torch.ones(rank, 8), name.replace("lora_A", "lora_B"): torch.ones(8, rank)}
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def _make_base(folder: Path, hidden_size: int) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": hidden_size, "num_hidden_layers": 1}))
    return str(folder)


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


def test_a_damaged_adapter_of_the_run_is_not_served(tmp_path: Path) -> None:
    with StageFolder(tmp_path / "finetune", Identity("finetune", {}, {})) as folder:
        config = _make_adapter(folder.path / "adapter") / "adapter_config.json"
        folder.finish({})
    assert list(resolve_adapters(ServeConfig(), folder.path)) == ["tuned"]
    config.unlink()
    with pytest.raises(DamageError, match=r"adapter_config\.json: is missing.*python jobs/finetune\.py --verify"):
        resolve_adapters(ServeConfig(), folder.path)
    assert list(resolve_adapters(ServeConfig(adapters=("other=/x",)), folder.path)) == ["other"]


def test_the_adapter_of_the_run_is_served_unless_others_are_named(tmp_path: Path) -> None:
    assert resolve_adapters(ServeConfig(), tmp_path) == {}
    trained = _make_adapter(tmp_path / "adapter")
    assert resolve_adapters(ServeConfig(), tmp_path) == {"tuned": trained}
    named = ServeConfig(adapters=("a=/x/y", "b=/p=q"))
    assert resolve_adapters(named, tmp_path) == {"a": Path("/x/y"), "b": Path("/p=q")}


def test_an_adapter_cannot_have_the_name_of_the_base_model(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="'base' is the name of the base model"):
        resolve_adapters(ServeConfig(adapters=("base=/x",)), tmp_path)


@pytest.mark.parametrize("adapters", [("no-folder",), ("=/x",), ("a=",), ("../a=/x",), ("a=/x", "a=/y")])
def test_adapters_that_are_not_name_and_folder_are_refused(adapters: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"is not name=folder|given twice"):
        ServeConfig(adapters=adapters)


@pytest.mark.parametrize(
    ("ranks", "configured", "rank"), [((), 0, 16), ((8,), 0, 16), ((24, 8), 0, 32), ((8,), 64, 64), ((64,), 0, 64)]
)
def test_the_served_rank_is_the_next_one_that_vllm_knows(tmp_path: Path, ranks: tuple, configured: int, rank: int) -> None:
    adapters = {str(number): _make_adapter(tmp_path / str(number), rank) for number, rank in enumerate(ranks)}
    assert compute_max_lora_rank(ServeConfig(max_lora_rank=configured), adapters) == rank


@pytest.mark.parametrize(("rank", "configured", "complaint"), [(64, 16, "an adapter has rank 64"), (600, 0, "up to 512")])
def test_a_rank_that_cannot_be_served_is_refused(tmp_path: Path, rank: int, configured: int, complaint: str) -> None:
    with pytest.raises(ServeError, match=complaint):
        compute_max_lora_rank(ServeConfig(max_lora_rank=configured), {"a": _make_adapter(tmp_path / "a", rank)})


def test_an_adapter_of_another_base_model_is_refused_by_name(tmp_path: Path) -> None:
    adapter = _make_adapter(tmp_path / "adapter")
    small, large = _make_base(tmp_path / "small", 8), _make_base(tmp_path / "large", 16)
    write_base_model(adapter, read_base_model(small, name="small-model"))
    read_adapters({"mine": adapter}, small, "small-model", AgentConfig())
    with pytest.raises(ServeError, match=r"'mine'.*'small-model' \(hidden size 8.*'large-model' \(hidden size 16"):
        read_adapters({"mine": adapter}, large, "large-model", AgentConfig())


class _Handler(http.server.BaseHTTPRequestHandler):
    ready_at = 0.0

    def do_GET(self) -> None:
        is_ready = time.monotonic() >= self.ready_at
        self.send_response(200 if is_ready and self.path == "/live" else 429)  # as where all places in the queue are taken
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[_Handler]]]:
    handler = type("Handler", (_Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield build_url("127.0.0.1", listening.server_port), handler
        listening.shutdown()


@pytest.mark.seconds
def test_waiting_ends_when_the_endpoint_listens_whoever_waits_for_its_engine(server: tuple[str, type[_Handler]]) -> None:
    url, handler = server
    handler.ready_at = time.monotonic() + 0.6
    wait_until_ready(url, 5.0)
    assert time.monotonic() >= handler.ready_at


def test_waiting_gives_up_and_says_what_was_answered(server: tuple[str, type[_Handler]]) -> None:
    url, handler = server
    handler.ready_at = time.monotonic() + 60
    with pytest.raises(ServeError, match=r"did not answer within 0.2 s .*429"):
        wait_until_ready(url, 0.2)


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:80"), ("::", "http://[::1]:80"), ("::1", "http://[::1]:80"), ("h", "http://h:80")],
)
def test_an_endpoint_that_listens_everywhere_is_called_on_the_loopback_address(host: str, url: str) -> None:
    assert build_url(host, 80) == url


def test_the_command_to_paste_takes_the_key_from_the_environment() -> None:
    assert "Bearer" not in build_curl_line("http://h:1", "base")
    assert '"Authorization: Bearer $DRAG_RAY_API_KEY"' in build_curl_line("http://h:1", "base", has_key=True)


def test_a_proxy_of_the_environment_does_not_see_the_key(
    server: tuple[str, type[_Handler]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with open_directly(f"{server[0]}/live", 5) as response:
        assert response.status == 200


def test_folders_of_adapters_are_resolved_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert resolve_adapter_dirs(ServeConfig(adapter_dirs=(tmp_path / "link",))) == (tmp_path / "real",)
    with pytest.raises(ServeError, match=r"serve.adapter_dirs: .*nowhere' is no folder"):
        resolve_adapter_dirs(ServeConfig(adapter_dirs=(tmp_path / "nowhere",)))


def test_fewer_engines_at_most_than_at_least_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_replicas 1 is below num_replicas 2"):
        ServeConfig(num_replicas=2, max_replicas=1)


def test_a_model_that_is_served_elsewhere_is_not_served_again() -> None:
    engine = EngineConfig(backend="openai", model="large", endpoint=EndpointConfig(address="http://a/v1"))
    with pytest.raises(ConfigError, match=r"'large' is served at http://a/v1 already"):
        ServeSections(AgentConfig(), engine, ServeConfig()).check()


def test_a_model_that_orders_nothing_is_refused_before_an_engine_starts(searcher: Searcher, tmp_path: Path) -> None:
    with StageFolder(tmp_path / "index", Identity("index", {}, {})) as index:
        shutil.copytree(searcher.index_dir, index.path / "search_index")
        index.finish({})
    settings = ServeConfig(port=find_port(), rerank=RerankConfig(model=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"rerank\.model .* cannot be read as a model"):
        stage.run(ServeSections(AgentConfig(), EngineConfig(), settings), Inputs({"finetune": None, "index": tmp_path / "index"}))


def test_where_this_machine_is_all_there_is_a_start_without_vllm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "list_nodes", lambda: [NodeResources(cpus=2, gpus=0)])
    monkeypatch.setitem(sys.modules, "vllm", None)
    sections = ServeSections(AgentConfig(), EngineConfig(), ServeConfig(port=find_port()))
    with pytest.raises(MissingPackageError, match=r"'vllm' is not installed.*drag-ray\[cpu\].*drag-ray\[gpu\]"):
        stage.run(sections, Inputs({"finetune": None, "index": None}), block=False)
