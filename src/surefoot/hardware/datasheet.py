"""The numbers of a device, each with its source."""

import json
import statistics
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from surefoot.errors import UnknownDevice, did_you_mean
from surefoot.hardware.aliases import devices_meant, known_instances
from surefoot.hardware.names import DRIVER_NAMES


@dataclass(frozen=True)
class Price:
    """What a provider charges for one device for one hour, and when we read it."""

    dollars_per_hour: float
    provider: str
    date: str
    source: str


@dataclass(frozen=True)
class Datasheet:
    """Dense peaks in FLOP/s by number format, never sparse ones; memory in bytes as the vendor labels it.

    `reached_flops` is the fastest measured matrix product. `usable_bytes` is the total memory that CUDA reports.
    Bandwidths are in bytes per second: of the memory, of the `link` to other devices in the node (one way, all lanes),
    of the bus to the host (one way). A number that no source states, or on which sources differ, is 0 or missing.
    """

    name: str
    vendor: str
    dense_flops: dict[str, float]
    memory_bytes: int
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    usable_bytes: int = 0
    compute_capability: str = ""
    architecture: str = ""
    """Of an AMD GPU, as ROCm names it: `gfx942`."""
    reached_flops: dict[str, float] | None = None
    memory_bandwidth: float = 0
    link: str = ""
    link_bandwidth: float = 0
    host_bandwidth: float = 0
    watts: float = 0
    processors: int = 0
    """Multiprocessors."""
    kernel_seconds: float = 0
    """The overhead of one operator, if it was measured."""
    call_seconds: dict[str, float] | None = None
    """What one operator adds to a step beyond the time it takes alone, by phase, if it was measured."""
    prices: tuple[Price, ...] = ()

    @property
    def dollars_per_hour(self) -> float:
        """The median of the prices; 0 if there are none."""
        return statistics.median(price.dollars_per_hour for price in self.prices) if self.prices else 0.0


def datasheet(name: str) -> Datasheet:
    """The datasheet of a device, for example `h100-sxm`, or by a name that people use: `h100`, `4090`."""
    sheets = _sheets()
    if not (meant := devices_meant(name, sheets)):
        near = did_you_mean(name, [*sorted(sheets), *known_instances()])
        raise UnknownDevice(
            f"no datasheet for {name!r}; {near}`surefoot hardware list` shows all {len(sheets)} devices"
        )
    return sheets[meant[0]]


def datasheet_of(driver_name: str) -> Datasheet | None:
    """The datasheet for a driver's device name; None if the device is not known for certain."""
    name = DRIVER_NAMES.get(driver_name)
    return datasheet(name) if name in known_devices() else None


def known_devices() -> tuple[str, ...]:
    """The names that `datasheet` knows."""
    return tuple(sorted(_sheets()))


@cache
def _sheets() -> dict[str, Datasheet]:
    text = (files("surefoot.hardware") / "datasheets.json").read_text(encoding="utf-8")
    return {plain["name"]: sheet_of(plain) for plain in json.loads(text)}


def sheet_of(plain: dict[str, Any]) -> Datasheet:
    """A datasheet from the JSON of a file."""
    prices = tuple(Price(**price) for price in plain.get("prices", ()))
    return Datasheet(**{**plain, "sources": tuple(plain["sources"]), "notes": tuple(plain["notes"]), "prices": prices})
