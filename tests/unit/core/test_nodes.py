from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from drag_ray.cluster import nodes
from drag_ray.cluster.nodes import NodeResources, find_seeing
from drag_ray.errors import ConfigError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Three nodes, the driver on `head`; `near` sees its folders and `far` does not. Which were asked, time by time."""
    rounds: list[set[str]] = []

    def ask(others: Collection[str], mark: Path) -> list[str]:
        assert mark.is_file()
        rounds.append(set(others))
        return [node for node in others if node == "near"]

    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "head"))
    monkeypatch.setattr(nodes, "_ask_nodes", ask)
    start(monkeypatch, head={"CPU": 2.0}, near={"CPU": 8.0, "GPU": 2.0}, far={"CPU": 16.0, "GPU": 8.0})
    return rounds


def start(monkeypatch: pytest.MonkeyPatch, **resources: dict[str, float]) -> None:
    """Make these the nodes of the cluster."""
    alive = [{"NodeID": name, "Alive": True, "Resources": has} for name, has in resources.items()]
    monkeypatch.setattr(ray, "nodes", lambda: [*alive, {"NodeID": "gone", "Alive": False, "Resources": {"CPU": 4.0}}])


def test_nodes_that_do_not_see_a_folder_are_neither_chosen_nor_counted(asked: list[set[str]], tmp_path: Path) -> None:
    seeing = find_seeing(tmp_path)
    assert seeing.selector == {"ray.io/node-id": "in(head,near)"}
    assert (seeing.num_cpus, seeing.num_gpus) == (10, 2)
    assert find_seeing(tmp_path, use_gpu=True) == ((NodeResources(8, 2),), {"ray.io/node-id": "in(near)"}, ("near",))
    assert list(tmp_path.iterdir()) == []


def test_nodes_are_asked_again_only_when_others_have_come(
    asked: list[set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        find_seeing(tmp_path)
    assert asked == [{"near", "far"}]
    start(monkeypatch, head={"CPU": 2.0}, near={"CPU": 8.0})
    assert find_seeing(tmp_path).selector is None
    assert asked == [{"near", "far"}, {"near"}]


def test_a_folder_that_no_node_with_room_sees_is_refused(
    asked: list[set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, head={}, far={"CPU": 16.0, "GPU": 8.0})
    for use_gpu, unit in ((False, "CPU"), (True, "GPU")):
        with pytest.raises(ConfigError, match=rf"no node that has a {unit} sees {tmp_path}.*--run-dir"):
            find_seeing(tmp_path, use_gpu=use_gpu)


def test_a_cluster_that_has_yet_to_grow_is_waited_for(
    asked: list[set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, head={})
    assert find_seeing(tmp_path) == ((), None, ())
    assert asked == []
