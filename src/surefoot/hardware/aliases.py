"""The names that people use for a device: without a prefix, a family's, a driver's, or that of a cloud's machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from surefoot.hardware.names import DRIVER_NAMES

FAMILIES: dict[str, tuple[str, ...]] = {
    "a100": ("a100-sxm-80gb", "a100-sxm-40gb", "a100-pcie-80gb", "a100-pcie-40gb"),
    "a100sxm": ("a100-sxm-80gb", "a100-sxm-40gb"),
    "a100pcie": ("a100-pcie-80gb", "a100-pcie-40gb"),
    "a10080gb": ("a100-sxm-80gb", "a100-pcie-80gb"),
    "a10040gb": ("a100-sxm-40gb", "a100-pcie-40gb"),
    "h100": ("h100-sxm", "h100-pcie", "h100-nvl", "h100-hbm2e-96gb"),
    "h10080gb": ("h100-sxm", "h100-pcie"),
    "v100": ("v100-sxm-16gb", "v100-sxm-32gb", "v100-pcie-16gb", "v100-pcie-32gb"),
    "v10016gb": ("v100-sxm-16gb", "v100-pcie-16gb"),
    "v10032gb": ("v100-sxm-32gb", "v100-pcie-32gb"),
    "4060ti": ("rtx-4060-ti-8gb", "rtx-4060-ti-16gb"),
    "mi300": ("mi300x",),
}
"""Of names that several devices have, the most common device first."""
_WORDS = ("nvidia", "geforce", "tesla", "amd", "instinct", "apple", "standard", "generation", "rtx")


@dataclass(frozen=True)
class Instance:
    """A machine that a cloud rents: how many of which device, and the network to the next such machine."""

    name: str
    count: int
    device: str
    source: str
    network: str | None = None
    host_gib: float = 0
    """GiB of memory of the machine itself; 0 if no source states it."""


def devices_meant(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known devices that a name may mean, the most common first; empty if there is none.

    One device means that the name is only another spelling.
    """
    names = set(known)
    if name in names:
        return (name,)
    if (driver := DRIVER_NAMES.get(name)) in names:
        return (str(driver),)
    key = _key(name)
    same = sorted(each for each in names if key and key in (_key(each), _key(re.sub("-(sxm)$", "", each))))
    return FAMILIES.get(key) or tuple(same[:1])


def instance(name: str) -> Instance | None:
    """The machine of a cloud with this name, in any case, with or without `Standard_`."""
    return _instances().get(_plain(name))


def known_instances() -> tuple[str, ...]:
    """The names that `instance` knows."""
    return tuple(each.name for each in _instances().values())


def said_of(name: str, known: Iterable[str]) -> str:
    """One line on what a name is taken for; empty if it can mean nothing else."""
    if (machine := instance(name)) is not None:
        return f"{name} is {machine.count} x {machine.device}"
    meant = devices_meant(name, known)
    if len(meant) < 2:
        return ""
    return f"{name} is taken for {meant[0]}; there are also {', '.join(meant[1:])}"


def _key(name: str) -> str:
    """Letters and digits alone, without the words that people leave out."""
    parts = re.split(r"[^a-z0-9]+", name.lower())
    joined = "".join(part for part in parts if part not in _WORDS)
    return re.sub(r"^rtx(?=\d)", "", re.sub(r"sxm[2-6]", "sxm", joined))


def _plain(name: str) -> str:
    return name.lower().removeprefix("standard_")


@cache
def _instances() -> dict[str, Instance]:
    text = (files("surefoot.hardware") / "instances.json").read_text(encoding="utf-8")
    found = [Instance(**plain) for plain in json.loads(text)]
    return {_plain(each.name): each for each in found}
