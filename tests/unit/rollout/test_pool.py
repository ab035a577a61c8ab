"""Shares of the cluster that the engines of a collection have."""

from pathlib import Path
from typing import Any

import pytest

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.nodes import NodeResources
from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.errors import ConfigError
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.options import build_options
from drag_ray.rollout.pool import Pool, share_cpus, share_engines, share_gpu, size_pool


def build_nodes(*gpus: int) -> list[NodeResources]:
    """Nodes with these numbers of GPUs, and with CPU cores enough."""
    return [NodeResources(64, num_gpus) for num_gpus in gpus]


@pytest.fixture
def served() -> EngineConfig:
    return EngineConfig(backend="openai", model="teacher", endpoint=EndpointConfig(address="http://teacher"))


@pytest.mark.parametrize(
    ("settings", "tensor_parallel_size", "gpus", "expected"),
    [
        ({}, 1, (8,), Pool(8, 8, 1, 1)),
        ({}, 2, (8,), Pool(4, 4, 1, 2)),
        ({}, 2, (7,), Pool(3, 3, 1, 2)),
        ({}, 2, (1, 4, 0, 3), Pool(3, 3, 1, 2)),  # the GPUs of an engine are of one node
        ({"engines_per_gpu": 4}, 1, (1, 1), Pool(8, 8, 1, 0.25)),
        ({"num_engines": 2, "max_engines": 6}, 1, (), Pool(2, 6, 1, 1)),  # a cluster that has yet to grow
        ({"num_engines": 3, "engines_per_gpu": 2}, 1, (8,), Pool(3, 3, 1, 0.5)),
    ],
)
def test_engines_on_gpus(settings: dict[str, Any], tensor_parallel_size: int, gpus: tuple[int, ...], expected: Pool) -> None:
    engine = EngineConfig(tensor_parallel_size=tensor_parallel_size)
    assert size_pool(RolloutConfig(**settings), engine, use_gpu=True, nodes=build_nodes(*gpus)) == expected


@pytest.mark.parametrize(
    ("num_gpus", "nodes", "expected"),
    [
        (1, [NodeResources(4, 8)], 4),
        (2, [NodeResources(16, 1), NodeResources(16, 5)], 2),
        (0.25, [NodeResources(16, 2)], 8),
        (0, [NodeResources(2, 0), NodeResources(3, 8)], 5),
        (1, [NodeResources(64, 0)], 0),
        (0, [], 0),
    ],
)
def test_room_is_what_each_node_has_of_all_that_an_engine_takes(
    num_gpus: float, nodes: list[NodeResources], expected: int
) -> None:
    assert Pool(9, 9, 1, num_gpus).count_room(nodes) == expected


def test_without_a_gpu_there_is_one_engine_unless_more_are_wanted() -> None:
    assert size_pool(RolloutConfig(engines_per_gpu=4), EngineConfig(), use_gpu=False, nodes=build_nodes(0)) == Pool(1, 1, 1, 0)
    assert size_pool(RolloutConfig(num_engines=2), EngineConfig(), use_gpu=False, nodes=build_nodes(0)) == Pool(2, 2, 1, 0)


@pytest.mark.parametrize(
    ("num_engines", "cores", "expected"),
    [(1, [8], 0), (2, [8], 4), (3, [8], 2), (9, [8], 1), (2, [8, 4], 0), (3, [8, 4], 2), (3, [0, 8], 2), (2, [], 0)],
)
def test_engines_on_the_cpus_of_a_machine_share_its_cores(num_engines: int, cores: list[int], expected: int) -> None:
    nodes = [NodeResources(number, 0) for number in cores]
    assert share_cpus(EngineConfig(), Pool(1, num_engines, 1, 0), nodes).cpu_threads == expected


@pytest.mark.parametrize(
    ("engine", "num_gpus"), [(EngineConfig(), 0.5), (EngineConfig(cpu_threads=3), 0)], ids=["on a GPU", "as it is said"]
)
def test_other_engines_keep_their_threads(engine: EngineConfig, num_gpus: float) -> None:
    assert share_cpus(engine, Pool(4, 4, 1, num_gpus), [NodeResources(8, 2)]) == engine


def test_engines_that_share_a_gpu_share_its_memory() -> None:
    assert share_gpu(EngineConfig(gpu_memory_utilization=0.8), 4).gpu_memory_utilization == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("workers_per_engine", "num_engines", "num_cpus", "expected"),
    [
        (0, 1, 16, (1, 8)),
        (0, 1, 2, (1, 1)),
        (0, 8, 64, (8, 32)),
        (0, 2, 128, (2, 16)),  # more would find the engine busy
        (3, 2, 2, (2, 6)),
    ],
)
def test_workers_that_share_an_engine_are_as_many_as_the_cores_allow(
    workers_per_engine: int, num_engines: int, num_cpus: int, expected: tuple[int, int]
) -> None:
    pool = share_engines(Pool(num_engines, 2 * num_engines, 1, 1), workers_per_engine, num_cpus)
    assert (pool.num_engines, pool.num_workers) == expected
    assert pool.max_workers == 2 * pool.num_workers
    assert (pool.num_cpus, pool.num_gpus) == (1, 0)


def test_too_few_gpus_and_shared_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"tensor_parallel_size is 4, and no node of the cluster has more than 3 GPUs"):
        size_pool(RolloutConfig(), EngineConfig(tensor_parallel_size=4), use_gpu=True, nodes=build_nodes(3, 2))
    with pytest.raises(ConfigError, match=r"engines_per_gpu is 2 and engine.tensor_parallel_size 4"):
        size_pool(RolloutConfig(engines_per_gpu=2), EngineConfig(tensor_parallel_size=4), use_gpu=True, nodes=build_nodes(8))


def test_a_pool_cannot_start_larger_than_it_may_grow() -> None:
    assert RolloutConfig(num_engines=2, max_engines=2).max_engines == 2
    with pytest.raises(ValueError, match="max_engines 1 is below num_engines 2"):
        RolloutConfig(num_engines=2, max_engines=1)


def test_an_endpoint_takes_no_gpu_and_is_asked_from_one_process(served: EngineConfig) -> None:
    assert size_pool(RolloutConfig(), served, use_gpu=True, nodes=build_nodes(8)) == Pool(1, 1, 1, 0)
    assert size_pool(RolloutConfig(num_engines=3), served, use_gpu=True, nodes=[]) == Pool(3, 3, 1, 0)


def test_a_model_behind_an_endpoint_may_have_tools(served: EngineConfig, tmp_path: Path) -> None:
    agent = AgentConfig(protocol="tools", tools=("search", "grep"), max_iterations=3)
    assert build_options(agent, served, RolloutConfig(), tmp_path, tmp_path).agent is agent
