"""Collectives: seconds of an all-reduce and the like, from latency and bandwidth (alpha-beta) of a cluster's links.

The algorithms are bandwidth-optimal rings: each of n ranks sends (n - 1) / n of the data to its neighbour, hop by hop.
An all-reduce does so twice, or uses a tree if there are many hops. Inside a node the data goes over the link between
devices. Over several nodes, each device's share of its node's network is the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from surefoot.costs.time_constants import Constants, constants
from surefoot.errors import UnknownDevice
from surefoot.hardware import Cluster
from surefoot.records.step_time import StepTime
from surefoot.records.tally import Tally

LATENCY_SECONDS = {"node": 5e-6, "network": 15e-6}
"""The latency of one hop. Assumed."""

PASSES = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "broadcast": 1}

FOLDED = {"dp_shard": "cp"}
"""Dimensions whose collectives also run over the dimension inside of them: shards are of both."""


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: how many, and how many of them share a node."""

    ranks: int
    per_node: int

    @property
    def scope(self) -> str:
        return "node" if self.ranks <= self.per_node else "network"


def group_of(cluster: Cluster, *, ranks: int, stride: int = 1) -> Group:
    """The group of a mesh dimension whose neighbours are `stride` devices apart."""
    return Group(ranks, max(1, cluster.per_node // stride))


def link_bandwidth(cluster: Cluster, group: Group, *, fitted: Constants | None = None) -> float:
    """Bytes per second that one device sends inside this group. Large messages reach a fitted share of a link."""
    if group.scope == "node":
        bandwidth = cluster.device.link_bandwidth or cluster.device.host_bandwidth
        if not bandwidth:
            raise UnknownDevice(f"the datasheet of {cluster.device.name} states no link between devices")
    else:
        bandwidth = cluster.node_bandwidth_per_device * min(group.per_node, group.ranks)
        if not bandwidth:
            raise UnknownDevice(f"no network between nodes is known for {cluster.device.name}: give one with --network")
    return (fitted or constants()).link_share * bandwidth


def seconds_of(
    kind: str, size_bytes: float, cluster: Cluster, group: Group, *, fitted: Constants | None = None
) -> float:
    """Seconds of one collective. `size_bytes` is the result of an all-gather, the operand of the others."""
    if group.ranks == 1:
        return 0.0
    sent = PASSES[kind] * size_bytes * (group.ranks - 1) / group.ranks
    return PASSES[kind] * _latency(kind, group) + sent / link_bandwidth(cluster, group, fitted=fitted)


def _latency(kind: str, group: Group) -> float:
    """The latency of one pass around the ring. An all-reduce uses a tree if that is faster; the others have none."""
    nodes = -(-group.ranks // group.per_node)
    ring = (group.ranks - nodes) * LATENCY_SECONDS["node"] + (nodes - 1) * LATENCY_SECONDS["network"]
    tree = 2 * group.ranks.bit_length() * LATENCY_SECONDS[group.scope]
    return (min(ring, tree) if kind == "all-reduce" else ring) / 2


def with_communication(
    time: StepTime, tally: Tally, cluster: Cluster, sizes: Mapping[str, int], *, fitted: Constants | None = None
) -> StepTime:
    """The time of a step on many ranks: adds the communication to it.

    `sizes` are the dimensions of the mesh, innermost first. A collective overlaps with the computation between its
    start and its end. All collectives of a phase overlap with no more than the phase's computation, and slow it down:
    they need multiprocessors and memory too. The host runs ahead of both.
    """
    fitted = fitted or constants()
    exposed: dict[str, float] = {}
    for phase, computed in time.phases.items():
        flops, hidden_left = tally.total(f"flops/{phase}"), computed
        for kind, dimension, count, size in _collectives(tally, phase):
            try:
                group = _group(cluster, sizes, dimension)
                seconds = count * seconds_of(kind, size / count, cluster, group, fitted=fitted)
            except UnknownDevice as unknown:
                return replace(time, assumptions=(*time.assumptions, f"no time for communication: {unknown}"))
            beside = tally.total(f"overlap/{kind}/{dimension}/{phase}")
            hidden = min(seconds, hidden_left, computed * beside / flops if flops else 0.0)
            hidden_left -= hidden
            name = f"{kind} over {dimension}"
            exposed[name] = exposed.get(name, 0.0) + seconds - hidden + fitted.beside_share * hidden
    waiting, computed = sum(exposed.values()), sum(time.phases.values())
    host = max(0.0, time.seconds - computed - waiting)
    network = cluster.network
    assumed = f"between nodes {network.name}, {network.bytes_per_second / 1e9:.0f} GB/s a node" if network else ""
    return replace(
        time,
        seconds=computed + waiting + host,
        bounds={**time.bounds, "communication": waiting, **({"host": host} if "host" in time.bounds else {})},
        exposed=exposed,
        assumptions=(
            *time.assumptions,
            f"links reach {fitted.link_share:.0%} of their bandwidth{'; ' + assumed if assumed else ''}",
        ),
    )


def _collectives(tally: Tally, phase: str) -> Iterator[tuple[str, str, int, float]]:
    """The collectives of a phase: kind, dimension, count, and total bytes."""
    for kind in tally.under("collectives"):
        for dimension in tally.under(f"collectives/{kind}"):
            count = int(tally.total(f"collectives/{kind}/{dimension}/{phase}"))
            if count and kind in PASSES:
                yield kind, dimension, count, tally.total(f"traffic/{kind}/{dimension}/{phase}")


def _group(cluster: Cluster, sizes: Mapping[str, int], dimension: str) -> Group:
    """The group of a dimension, or of all ranks if there is none of this name."""
    names = list(sizes)
    spanned = [name for name in names if name in (dimension, FOLDED.get(dimension))] or names
    inside = names[: names.index(spanned[0])] if spanned else []
    ranks, stride = (math.prod(map(sizes.__getitem__, found)) for found in (spanned, inside))
    return group_of(cluster, ranks=ranks, stride=stride)
