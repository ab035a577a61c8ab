"""Choices of Ray's autoscaler, by its own scheduler."""

from collections.abc import Mapping, Sequence
from typing import Any

from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil


def choose_nodes(
    cluster: dict[str, Any], demand: Sequence[Mapping[str, float]], unavailable: Sequence[str] = ()
) -> tuple[dict[str, int], int]:
    """The number of started nodes of each type for work that asks for these resources, and of requests that fit nowhere.

    Args:
        cluster: the configuration of the autoscaler.
        unavailable: types of which the cloud had none when they were last asked for.
    """
    config = AutoscalingConfig(cluster, skip_content_hash=True)
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=config.get_node_type_configs(),
        max_num_nodes=config.get_max_num_nodes(),
        idle_timeout_s=config.get_idle_timeout_s(),
        resource_requests=ResourceRequestUtil.group_by_count([ResourceRequestUtil.make(dict(resources)) for resources in demand]),
        cloud_resource_availabilities=dict.fromkeys(unavailable, 0.0),
        recoverable_resource_availabilities=dict.fromkeys(unavailable, 0.0),
    )
    reply = ResourceDemandScheduler().schedule(request)
    started = {launch.instance_type: launch.count for launch in reply.to_launch}
    return started, len(reply.infeasible_resource_requests)
