"""Shares: each module's share of a profiled step, and whether compute or memory is its limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from surefoot.costs.trace_time import OUTSIDE
from surefoot.records.profile import Profile
from surefoot.records.report import ModuleShare
from surefoot.records.tally import Tally

NOTICED = 0.005
"""A module with a smaller share of the seconds says nothing about the machine's limits."""


@dataclass(frozen=True)
class Ceilings:
    """A device's highest rates, and their source. They cross at the ridge, in FLOP per byte."""

    flops_per_second: float
    bytes_per_second: float
    source: str

    @property
    def ridge(self) -> float:
        """Below it memory is the limit, above it compute."""
        return self.flops_per_second / self.bytes_per_second

    def at(self, intensity: float) -> float:
        """FLOP/s that the roofline allows."""
        return min(self.flops_per_second, intensity * self.bytes_per_second)


def seen_ceilings(shares: Iterable[ModuleShare]) -> Ceilings | None:
    """The highest rates that any of these modules reached: the machine can do at least this much."""
    noticed = [each for each in shares if each.seconds > 0]
    least = NOTICED * sum(each.seconds for each in noticed)
    noticed = [each for each in noticed if each.seconds >= least]
    flops = max((each.flops / each.seconds for each in noticed), default=0.0)
    moved = max((each.moved_bytes / each.seconds for each in noticed), default=0.0)
    return Ceilings(flops, moved, "the highest rates of any module in this profile") if flops and moved else None


def bound(share: ModuleShare, ceilings: Ceilings | None) -> str:
    """`compute` or `memory`; empty if nothing was counted."""
    if ceilings is None or not share.moved_bytes:
        return ""
    return "compute" if share.flops / share.moved_bytes >= ceilings.ridge else "memory"


def module_shares(profile: Profile) -> list[ModuleShare]:
    """Each module's memory at the peak, FLOPs, bytes moved and seconds in a step, most seconds first."""
    memory, flops = (_by_module(profile.steady.tally, name) for name in ("memory", "flops"))
    moved, seconds = _by_module(profile.counted, "moved"), _by_module(profile.traced, "time")
    shares = [
        ModuleShare(
            module, int(memory.get(module, 0)), flops.get(module, 0), moved.get(module, 0), seconds.get(module, 0)
        )
        for module in sorted({*memory, *flops, *moved, *seconds})
    ]
    return sorted(shares, key=lambda each: -each.seconds)


def operator_seconds(profile: Profile) -> dict[str, float]:
    """Seconds of a step by operator, most first."""
    found: dict[str, float] = {}
    for account in profile.traced.accounts:
        operator = account.name.split("/", 3)[3]
        found[operator] = found.get(operator, 0) + account.amount
    return _most_first(found)


def _by_module(tally: Tally, name: str) -> dict[str, float]:
    """`NAME/KIND/MODULE...` by module."""
    found: dict[str, float] = {}
    for account in tally.accounts:
        first, *rest = account.name.split("/", 3)
        if first == name:
            module = (rest[1] if len(rest) > 1 else "") or OUTSIDE
            found[module] = found.get(module, 0) + account.amount
    return found


def _most_first(amounts: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(amounts.items(), key=lambda item: -item[1]))
