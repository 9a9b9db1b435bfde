"""A CUDA memory snapshot beside the plan of the script that it came from."""

from __future__ import annotations

from dataclasses import replace

from surefoot.records.plan import Plan
from surefoot.records.snapshot import MemorySnapshot, Planned

_MEMORY = "memory/"


def beside(snapshot: MemorySnapshot, plan: Plan) -> MemorySnapshot:
    """The snapshot with what the plan says of each account, the largest first."""
    names = {each.name.split("/")[1] for each in plan.steady.tally.accounts if each.name.startswith(_MEMORY)}
    rows = [Planned(name, int(plan.steady.tally.total(_MEMORY + name))) for name in names]
    rows.sort(key=lambda each: (-each.bytes, each.account))
    reserved = min(plan.reserved_bytes.values(), default=0)
    return replace(snapshot, planned=tuple(rows), planned_reserved_bytes=reserved)
