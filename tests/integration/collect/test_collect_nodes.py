"""A collection on a cluster whose nodes are not alike, which is smaller than what is asked of it, or which grows."""

import asyncio
import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import collecting
import pytest
import ray
from factories import build_question
from ray.cluster_utils import Cluster

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.connection import ClusterConfig, connect, ensure_token, require_token
from drag_ray.cluster.nodes import NodeResources, list_nodes
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import GenerateFn, Generation, ImageSource, Request
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import run_plan


@pytest.fixture
def unlike_nodes() -> Iterator[None]:
    """A head that has no work, a node with one GPU and one with four, which only Ray believes in."""
    ensure_token(may_create=True)
    with require_token():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        try:
            cluster.add_node(num_cpus=4, num_gpus=1)
            cluster.add_node(num_cpus=4, num_gpus=4)
            with connect(ClusterConfig(address=str(cluster.address))):
                yield
        finally:
            cluster.shutdown()


def build_options(folder: Path, engine: EngineConfig, num_awaited: int) -> WorkerOptions:
    """Engines that note where they are, and reply when so many of them have."""

    def build_engine(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> GenerateFn:
        place = {"node": ray.get_runtime_context().get_node_id(), "gpus": ray.get_gpu_ids()}
        (folder / f"{os.getpid()}.json").write_text(json.dumps(place))

        async def generate(request: Request) -> Generation:
            while len(list(folder.glob("*.json"))) < num_awaited:
                await asyncio.sleep(0.05)
            return Generation("<search>rotor</search>", (), (1,), "stop")

        return generate

    agent = AgentConfig(query_mode="rewrite", max_iterations=1)
    return collecting.build_options(folder, ["rotor"], agent=agent, engine=engine, build_engine=build_engine)


@pytest.mark.slow
def test_engines_take_the_gpus_of_one_node_each_and_those_that_fit_do_the_work(
    unlike_nodes: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert sorted(list_nodes()) == [NodeResources(0, 0), NodeResources(4, 1), NodeResources(4, 4)]
    plan = build_plan([build_question(id=f"q{number}") for number in range(8)], ("default",), 4, run_seed=0)
    options = build_options(tmp_path, EngineConfig(device="gpu", tensor_parallel_size=2), num_awaited=2)
    counts = run_plan(plan, options, RolloutConfig(num_engines=3, concurrent_rollouts=4, chunk_rollouts=4), "test")
    assert (counts["finished"], counts["unfinished"]) == (32, 0)
    assert "engines: 3 are requested, and the cluster has room for 2 now" in caplog.text
    places = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    [large] = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU") == 4]
    assert [place["node"] for place in places] == [large, large]
    assert sorted(gpu for place in places for gpu in place["gpus"]) == [0, 1, 2, 3]
    # Without a number there are as many engines as there is room for, and nothing to be said.
    caplog.clear()
    (again := tmp_path / "again").mkdir()
    run_plan(plan, build_options(again, options.engine, num_awaited=2), RolloutConfig(concurrent_rollouts=4), "test")
    assert len(list(again.glob("*.json"))) == 2
    assert "engines:" not in caplog.text


ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_nodes_come_for_engines_are_used_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from trace_autoscaling import trace

    results = trace(num_engines=3, num_rollouts=240, folder=tmp_path)
    assert (results["kept"], results["lost"], results["kept_twice"], results["failed"]) == (240, 0, 0, 0)
    nodes, engines = ([moment[name] for moment in results["moments"]] for name in ("nodes", "engines"))
    assert (nodes[0], engines[0]) == (0, 0)
    assert (max(nodes), engines[-1]) == (3, 3)
    assert nodes[-1] == 0
    assert results["collected_after_s"] < results["moments"][-1]["at_s"]
