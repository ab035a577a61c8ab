from drag_ray.cluster.nodes import NodeResources, SharedPathNodes
from drag_ray.finetune.workers import Workers, size_workers

NO_NODES = SharedPathNodes((), None)


def test_a_worker_takes_each_gpu_of_the_nodes_that_may_be_used() -> None:
    nodes = SharedPathNodes((NodeResources(8, 2), NodeResources(4, 1)), None)
    assert size_workers(0, nodes, use_gpu=True) == Workers(3, 1, True)
    assert size_workers(8, nodes, use_gpu=True) == Workers(8, 1, True)
    assert size_workers(8, nodes, use_gpu=True).list_missing(nodes) == {"GPU": 5}
    assert size_workers(0, NO_NODES, use_gpu=True) == Workers(1, 1, True)


def test_workers_on_cpus_share_the_largest_node_as_if_spread_evenly() -> None:
    nodes = SharedPathNodes((NodeResources(8, 0), NodeResources(4, 0)), None)
    assert size_workers(0, nodes, use_gpu=False) == Workers(1, 8, False)
    assert size_workers(4, nodes, use_gpu=False) == Workers(4, 4, False)
    assert size_workers(40, nodes, use_gpu=False) == Workers(40, 1, False)
    assert size_workers(4, nodes, use_gpu=False).list_missing(nodes) == {"CPU": 4}
    assert size_workers(0, NO_NODES, use_gpu=False).list_missing(NO_NODES) == {"CPU": 1}
