"""Networks between nodes: what one node can send, in bytes per second, one way."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from surefoot.errors import UnknownDevice, known_names

SOURCE = "stas00/ml-engineering network/README.md@744d01e1"


@dataclass(frozen=True)
class Network:
    """All links of one node to other nodes, added up."""

    name: str
    bytes_per_second: float
    about: str = ""
    source: str = SOURCE


def network(name: str) -> Network:
    """A network by name, for example `dgx-h100`, or by a node's bytes per second, for example `400e9`."""
    known = _networks()
    if name in known:
        return known[name]
    try:
        return Network(name, float(name), "as given", "")
    except ValueError:
        raise UnknownDevice(
            f"no network {name!r}; {known_names(name, known)}; or give the bytes/s of one node, for example 400e9"
        ) from None


def known_networks() -> tuple[Network, ...]:
    """All networks that have a name."""
    return tuple(_networks().values())


@cache
def _networks() -> dict[str, Network]:
    text = (files("surefoot.hardware") / "networks.json").read_text(encoding="utf-8")
    return {plain["name"]: Network(**plain) for plain in json.loads(text)}
