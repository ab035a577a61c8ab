"""Nodes that Ray's autoscaler starts and ends as raylets of this machine."""

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class RayletProvider(FakeMultiNodeProvider):
    """Ray's own, of which the package lacks the file with its defaults; a provider from elsewhere needs none."""
