"""Cluster: many of one device, in nodes, with a network between them and a price."""

from __future__ import annotations

import re
from dataclasses import dataclass

from surefoot.hardware.aliases import Instance, instance, said_of
from surefoot.hardware.datasheet import Datasheet, datasheet, known_devices
from surefoot.hardware.network import Network, network

DEVICES_PER_NODE = 8
ANY_COUNT = "Nx"
"""Stands in place of a count of devices: search for the fewest that fit."""
_NETWORKS = {"9.0": "dgx-h100", "10.0": "aws-p6-b200", "10.3": "dgx-b300"}
"""The network to assume if none is given, by compute capability."""


@dataclass(frozen=True)
class Cluster:
    """`count` devices, `per_node` of them in a node. `network` is None if it is neither given nor assumed."""

    device: Datasheet
    count: int = 1
    per_node: int = DEVICES_PER_NODE
    network: Network | None = None
    network_is_assumed: bool = False
    dollars_per_hour: float = 0.0
    """For one device."""
    host_bytes: int = 0
    """Memory of the host of a node; 0 if it is unknown."""

    @property
    def name(self) -> str:
        return self.device.name if self.count == 1 else f"{self.count}x{self.device.name}"

    @property
    def nodes(self) -> int:
        return -(-self.count // self.per_node)

    @property
    def node_bandwidth_per_device(self) -> float:
        """Bytes per second from each device to other nodes while the whole node sends; 0 if unknown."""
        return 0.0 if self.network is None else self.network.bytes_per_second / min(self.count, self.per_node)


def counted(name: str) -> tuple[int, str]:
    """Splits `8xh100-sxm` into 8 and `h100-sxm`. A name alone counts one, and a cloud's machine all of its devices."""
    count, single = _split(name)
    machine = instance(single)
    return (count, single) if machine is None else (count * machine.count, machine.device)


def names_said(name: str) -> str:
    """One line on what a name is taken for, if it is a cloud's machine or may mean several devices; else empty."""
    return said_of(_split(name.removeprefix(ANY_COUNT))[1], known_devices())


def _split(name: str) -> tuple[int, str]:
    found = re.fullmatch(r"([1-9]\d{0,8})x(.+)", name)
    return (int(found[1]), found[2]) if found else (1, name)


def _machine(name: str) -> Instance | None:
    return instance(_split(name)[1])


def cluster(
    name: str,
    *,
    per_node: int | None = None,
    between_nodes: str | None = None,
    dollars_per_hour: float | None = None,
) -> Cluster:
    """A cluster by name, for example `1024xh100-sxm`. The datasheet or a stated assumption fills in the rest."""
    count, single = counted(name)
    sheet = datasheet(single)
    assumed = _NETWORKS.get(sheet.compute_capability)
    machine = _machine(name)
    chosen = between_nodes or (machine.network if machine is not None else None) or assumed
    return Cluster(
        sheet,
        count,
        per_node or (machine.count if machine is not None else DEVICES_PER_NODE),
        None if chosen is None else network(chosen),
        between_nodes is None and chosen == assumed and assumed is not None,
        sheet.dollars_per_hour if dollars_per_hour is None else dollars_per_hour,
        round(machine.host_gib * 2**30) if machine is not None else 0,
    )
