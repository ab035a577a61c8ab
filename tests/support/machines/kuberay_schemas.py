"""JSON schemas of what KubeRay's operator 1.5 reads of its three kinds of objects: names, types, choices and what is required.

Written after its Go types (ray-operator/apis/ray/v1 of github.com/ray-project/kuberay, Apache-2.0), from which its custom
resource definitions are generated; those are in no package. Types of before and after 1.5 were read, not those of 1.5 itself.
Pods and services are Kubernetes' own, and left open here.
"""

from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
NUMBER: Schema = {"type": "number"}
OF_KUBERNETES: Schema = {"type": "object"}
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
LIST_OF_KUBERNETES: Schema = {"type": "array", "items": OF_KUBERNETES}
TEXT_MAP: Schema = {"type": "object", "additionalProperties": TEXT}
MANAGER: Schema = {"enum": ["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]}


def fields(*required: str, **properties: Schema) -> Schema:
    """An object that has these properties alone, in the spelling of the API."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


GROUP = {"rayStartParams": TEXT_MAP, "resources": TEXT_MAP, "labels": TEXT_MAP, "template": OF_KUBERNETES}
"""What the head and the groups of workers share."""
AUTOSCALER = fields(
    resources=OF_KUBERNETES,
    image=TEXT,
    imagePullPolicy={"enum": ["Always", "Never", "IfNotPresent"]},
    env=LIST_OF_KUBERNETES,
    envFrom=LIST_OF_KUBERNETES,
    volumeMounts=LIST_OF_KUBERNETES,
    securityContext=OF_KUBERNETES,
    idleTimeoutSeconds=COUNT,
    upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
    version={"enum": ["v1", "v2"]},
)
HEAD_GROUP = fields(
    "template",
    **GROUP,
    serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]},
    headService=OF_KUBERNETES,
    enableIngress=BOOLEAN,
)
WORKER_GROUP = fields(
    *("groupName", "minReplicas", "maxReplicas", "template"),
    **GROUP,
    groupName=TEXT,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    numOfHosts=COUNT,
    idleTimeoutSeconds=COUNT,
    scaleStrategy=fields(workersToDelete=TEXTS),
    suspend=BOOLEAN,
)
CLUSTER = fields(
    "headGroupSpec",
    rayVersion=TEXT,
    authOptions=fields(mode={"enum": ["disabled", "token"]}),
    enableInTreeAutoscaling=BOOLEAN,
    autoscalerOptions=AUTOSCALER,
    headGroupSpec=HEAD_GROUP,
    workerGroupSpecs={"type": "array", "items": WORKER_GROUP},
    headServiceAnnotations=TEXT_MAP,
    gcsFaultToleranceOptions=OF_KUBERNETES,
    suspend=BOOLEAN,
    managedBy=MANAGER,
    upgradeStrategy=fields(type={"enum": ["Recreate", "None"]}),
)
JOB = fields(
    activeDeadlineSeconds=COUNT,
    backoffLimit=COUNT,
    rayClusterSpec=CLUSTER,
    submitterPodTemplate=OF_KUBERNETES,
    metadata=TEXT_MAP,
    clusterSelector=TEXT_MAP,
    submitterConfig=fields(backoffLimit=COUNT),
    managedBy=MANAGER,
    deletionStrategy=OF_KUBERNETES,
    entrypoint=TEXT,
    runtimeEnvYAML=TEXT,
    jobId=TEXT,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    entrypointResources=TEXT,
    entrypointNumCpus=NUMBER,
    entrypointNumGpus=NUMBER,
    ttlSecondsAfterFinished=COUNT,
    shutdownAfterJobFinishes=BOOLEAN,
    suspend=BOOLEAN,
)
SERVICE = fields(
    serveConfigV2=TEXT,
    rayClusterConfig=CLUSTER,
    serveService=OF_KUBERNETES,
    upgradeStrategy=OF_KUBERNETES,
    excludeHeadPodFromServeSvc=BOOLEAN,
    rayClusterDeletionDelaySeconds=COUNT,
)


def describe(kind: str, spec: Schema) -> Schema:
    """A whole object of the API `ray.io/v1`."""
    return fields(
        *("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "ray.io/v1"},
        kind={"const": kind},
        metadata={"type": "object", "required": ["name"]},
        spec=spec,
    )


SCHEMAS = {
    "RayCluster": describe("RayCluster", CLUSTER),
    "RayJob": describe("RayJob", JOB),
    "RayService": describe("RayService", SERVICE),
}
