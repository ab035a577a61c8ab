"""The files that start clusters elsewhere than cluster.yaml does: Ray takes them, Kubernetes' schemas do, and none is open.

KubeRay's own schemas are in no package: what its operator reads beside pods is checked by `kuberay_schemas.py`, written after
its types, and Ray's autoscaler reads the cluster as it does beside the operator.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from autoscaling import choose_nodes
from kuberay_schemas import SCHEMAS

from drag_ray.cluster.connection import SERVING_ENVIRONMENT
from drag_ray.pipeline.serve_app import build

CLUSTERS = Path(__file__).parents[2] / "runtime_env" / "clusters"
KUBERAY = CLUSTERS / "kuberay"
LAUNCHED = ("gcp", "on_premises", "single_host")
KUBERNETES = "1.33"
NO_REPORT = {"RAY_USAGE_STATS_ENABLED": "0"}


def read_filled(path: Path) -> str:
    """A file with what is to be filled in filled in; a list where one is asked for."""
    text = re.sub(r"\[FILL_IN\w+\]", "[10.0.0.2, 10.0.0.3]", path.read_text())
    return re.sub(r"FILL_IN_[\w]+(\.yaml)?", "filled-in", text)


def read_objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(read_filled(KUBERAY / f"{name}.yaml")))


def list_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(KUBERAY.glob("*.yaml")):
        for document in read_objects(path.stem):
            yield path.stem, document


def list_clusters() -> list[dict[str, Any]]:
    (service,) = read_objects("ray_service")
    (cluster,) = read_objects("ray_cluster")
    return [cluster["spec"], service["spec"]["rayClusterConfig"]]


def list_groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_takes_the_file_once_it_is_filled_in(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(read_filled(CLUSTERS / f"{name}.yaml")))
    validate_config(config)
    if config["provider"]["type"] == "local":
        node_type = config["available_node_types"]["local.cluster.node"]
        assert node_type["min_workers"] == node_type["max_workers"] == len(config["provider"]["worker_ips"])


@pytest.mark.parametrize("name", LAUNCHED)
def test_what_is_to_be_filled_in_is_named_before_anything_else_and_every_ray_asks_for_the_token(name: str) -> None:
    text = (CLUSTERS / f"{name}.yaml").read_text()
    config = yaml.safe_load(text)
    assert text.rindex("FILL_IN") < text.index("file_mounts:")
    assert "FILL_IN" in str(config["provider"])
    starts = [text for text in [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]] if "ray start" in text]
    assert all("RAY_AUTH_MODE=token " in command for command in starts)
    assert all("RAY_USAGE_STATS_ENABLED=0 " in command for command in starts if "--head" in command)
    assert any("--dashboard-host=127.0.0.1" in command for command in starts)
    assert any(path.endswith(".ray/auth_token") for path in config["file_mounts"])


def test_on_google_cloud_the_work_starts_the_nodes_that_it_needs() -> None:
    from ray.autoscaler._private.util import prepare_config

    config = prepare_config(yaml.safe_load(read_filled(CLUSTERS / "gcp.yaml")))
    assert choose_nodes(config, [{"CPU": 1, "GPU": 1}] * 9) == ({"gpu_spot": 2}, 0)
    assert choose_nodes(config, [{"CPU": 1, "GPU": 1}] * 9, unavailable=["gpu_spot"]) == ({"gpu": 2}, 0)
    assert choose_nodes(config, [{"CPU": 1}] * 100) == ({"cpu_spot": 4}, 0)
    assert "RAY_enable_autoscaler_v2=1 " in " ".join(config["head_start_ray_commands"])


def test_kubernetes_takes_its_own_objects_of_the_manifests() -> None:
    checked = []
    for name, document in list_objects():
        if document["apiVersion"] != "ray.io/v1":
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
            checked.append((name, document["kind"]))
    assert checked == [("network_policies", "NetworkPolicy")] * 2 + [("storage", "PersistentVolumeClaim")]


def test_kubernetes_takes_the_pods_of_the_manifests() -> None:
    templates = [group["template"] for cluster in list_clusters() for group in list_groups(cluster)]
    for template in templates:
        document = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        (container,) = template["spec"]["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**document, "template": {"spec": {"conatiners": []}}}, KUBERNETES, strict=True)
    assert len(templates) == 5


def test_kuberay_takes_the_objects_of_the_manifests() -> None:
    documents = {document["kind"]: document for _, document in list_objects() if document["apiVersion"] == "ray.io/v1"}
    assert documents.keys() == SCHEMAS.keys()
    for kind, document in documents.items():
        jsonschema.validate(document, SCHEMAS[kind])
    assert documents["RayJob"]["spec"]["clusterSelector"] == {"ray.io/cluster": documents["RayCluster"]["metadata"]["name"]}
    assert isinstance(yaml.safe_load(documents["RayJob"]["spec"]["runtimeEnvYAML"])["env_vars"], dict)
    for cluster in list_clusters():
        for group in cluster["workerGroupSpecs"]:
            assert group["minReplicas"] <= group.get("replicas", group["minReplicas"]) <= group["maxReplicas"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("workerGroupSpecs", 0, "rayStartParams"), {"num-cpus": 0}),
        (("workerGroupSpecs", 0, "minReplicas"), "0"),
        (("workerGroupSpecs", 0, "replica"), 1),
        (("autoscalerOptions", "version"), 2),
        (("authOptions", "mode"), "tokens"),
        (("headGroupSpec", "serviceType"), "Public"),
    ],
)
def test_kuberay_would_refuse_what_is_mistaken(place: tuple[str | int, ...], value: object) -> None:
    (cluster,) = read_objects("ray_cluster")
    *parents, last = place
    changed = cluster["spec"]
    for name in parents:
        changed = changed[name]
    changed[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(cluster, SCHEMAS["RayCluster"])


@pytest.mark.seconds
def test_ray_start_has_the_options_of_the_manifests() -> None:
    from ray.scripts.scripts import start

    options = {option.lstrip("-") for parameter in start.params for option in parameter.opts}
    for cluster in list_clusters():
        for group in list_groups(cluster):
            assert group["rayStartParams"].keys() <= options
            assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_rays_autoscaler_reads_the_clusters_and_starts_the_nodes_that_work_needs() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    cluster, service = list_clusters()
    for spec, demand, expected in (
        (cluster, [{"CPU": 1}] * 100, {"cpu": 4}),
        (cluster, [{"GPU": 1, "CPU": 1}] * 9, {"gpu": 2}),
        (service, [{"GPU": 1, "CPU": 1}] * 3, {"gpu": 3}),
    ):
        config = _derive_autoscaling_config_from_ray_cr({"metadata": {"name": "drag-ray", "namespace": "default"}, "spec": spec})
        assert choose_nodes(config, demand) == (expected, 0)


def test_the_manifests_ask_for_tokens_run_as_a_user_and_hold_no_secret() -> None:
    for cluster in list_clusters():
        assert cluster["authOptions"] == {"mode": "token"}
        assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
        for group in list_groups(cluster):
            template = group["template"]
            assert template["metadata"]["labels"] == {"app.kubernetes.io/name": "drag-ray"}
            assert template["spec"]["securityContext"]["runAsNonRoot"]
            assert not template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"]
            assert all(
                "value" not in entry or "KEY" not in entry["name"] for entry in template["spec"]["containers"][0].get("env", [])
            )


def test_ray_serve_has_the_variables_of_an_endpoint_elsewhere_on_all_pods_that_serve() -> None:
    _, service = list_clusters()
    for group in list_groups(service):
        assert {
            entry["name"]: entry["value"] for entry in group["template"]["spec"]["containers"][0]["env"]
        } == SERVING_ENVIRONMENT | NO_REPORT


def test_no_head_reports_its_use() -> None:
    for cluster in list_clusters():
        (container,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
        assert {entry["name"]: entry["value"] for entry in container["env"]}.items() >= NO_REPORT.items()


def test_the_policies_select_the_pods_and_let_no_stranger_in() -> None:
    ingress, egress = read_objects("network_policies")
    for policy in (ingress, egress):
        assert policy["spec"]["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "drag-ray"}
    rules = ingress["spec"]["ingress"]
    assert all(rule["from"] for rule in rules)
    assert [rule["from"] for rule in rules if "ports" not in rule] == [[{"podSelector": ingress["spec"]["podSelector"]}]]
    assert "namespaceSelector" not in str(rules[-1])


@pytest.mark.seconds
def test_ray_serve_takes_the_services_configuration_and_builds_its_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray._common.utils import import_attr
    from ray.serve.schema import ServeDeploySchema

    (service,) = read_objects("ray_service")
    schema = ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
    assert (schema.http_options.host, schema.http_options.port) == ("0.0.0.0", 8000)
    (application,) = schema.applications
    assert import_attr(application.import_path) is build
    # The same with the embedded model in the place of one that is not here, and a run that holds nothing yet.
    options = application.args["options"].partition(" ")[2].partition(" ")[2]
    options = options.replace("/shared/runs/first", str(tmp_path)) + " --engine.model embedded --serve.device cpu"
    monkeypatch.setenv("DRAG_RAY_API_KEY", "0123456789abcdef-of-a-test")
    built = build({"options": options})
    assert built._bound_deployment.name == "openai"
    monkeypatch.delenv("DRAG_RAY_API_KEY")
    with pytest.raises(Exception, match="key"):
        build({"options": options})
