"""Devices as data: every number has its source; unknown numbers stay unknown."""

from surefoot.hardware.cluster import Cluster, cluster, counted, names_said
from surefoot.hardware.datasheet import Datasheet, Price, datasheet, known_devices
from surefoot.hardware.network import Network, known_networks, network

__all__ = [
    "Cluster",
    "Datasheet",
    "Network",
    "Price",
    "cluster",
    "counted",
    "datasheet",
    "known_devices",
    "known_networks",
    "names_said",
    "network",
]
