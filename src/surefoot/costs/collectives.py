"""Collectives: seconds of an all-reduce and its like, by latency and bandwidth (alpha-beta) over a cluster's links.

Ring algorithms, bandwidth-optimal: of n ranks, each sends (n - 1) / n of the data to its neighbour; an all-reduce does
so twice. Inside a node the link between devices carries it. A group over several nodes is bound by each device's share
of its node's network.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.errors import UnknownDevice
from surefoot.hardware import Cluster

LATENCY_SECONDS = {"node": 5e-6, "network": 15e-6}
"""Of one hop. Assumed."""

LINK_SHARE = {"node": 0.8, "network": 0.8}
"""Of a link's bandwidth that large messages reach. Assumed, but for this: 8 H200 were measured at 482 GB/s of bus
bandwidth over links of 450 GB/s one way, because the switch reduces; a ring does not get there."""

PASSES = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "broadcast": 1}


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: how many, and how many of them are in one node."""

    ranks: int
    per_node: int

    @property
    def scope(self) -> str:
        return "node" if self.ranks <= self.per_node else "network"


def group_of(cluster: Cluster, *, ranks: int, stride: int = 1) -> Group:
    """A mesh dimension: its neighbours are `stride` devices apart."""
    return Group(ranks, max(1, cluster.per_node // stride))


def link_bandwidth(cluster: Cluster, group: Group) -> float:
    """Bytes per second that one device sends inside such a group."""
    if group.scope == "node":
        bandwidth = cluster.device.link_bandwidth or cluster.device.host_bandwidth
        if not bandwidth:
            raise UnknownDevice(f"the datasheet of {cluster.device.name} states no link between devices")
    else:
        bandwidth = cluster.node_bandwidth_per_device * min(group.per_node, group.ranks)
        if not bandwidth:
            raise UnknownDevice(f"no network between nodes is known for {cluster.device.name}: give one with --network")
    return LINK_SHARE[group.scope] * bandwidth


def seconds_of(kind: str, size_bytes: float, cluster: Cluster, group: Group) -> float:
    """Of one collective over `size_bytes`: the whole result of an all-gather, the whole operand of the others."""
    if group.ranks == 1:
        return 0.0
    passes = PASSES[kind]
    sent = passes * size_bytes * (group.ranks - 1) / group.ranks
    hops = passes * (group.ranks - 1 if group.ranks <= 64 else 2 * group.ranks.bit_length())  # rings, then trees
    return hops * LATENCY_SECONDS[group.scope] / 2 + sent / link_bandwidth(cluster, group)
