"""A booked memory snapshot as text: what holds the memory, what is free, and what cannot be told."""

from __future__ import annotations

import os

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.explanation import Place
from surefoot.records.out_of_memory import Held
from surefoot.records.snapshot import MemorySnapshot
from surefoot.reports.parts import table_of
from surefoot.units import bytes_text, counted

_LARGEST, _MODULES = 8, 3


def snapshot_text(snapshot: MemorySnapshot) -> RenderableType:
    """The accounts, then where the rest of the reserved memory is, then the largest blocks with their lines."""
    return Group(
        Text.assemble(
            (os.path.basename(snapshot.file), "bold"),
            f"  {bytes_text(snapshot.reserved_bytes)} reserved in {counted(snapshot.segments, 'segment')}, "
            f"{bytes_text(snapshot.requested_bytes)} of it asked for by live tensors",
        ),
        *_refused(snapshot),
        *_planned(snapshot),
        Text(),
        _accounts(snapshot),
        Text(),
        _reserved(snapshot),
        *_largest(snapshot),
        *_emptiest(snapshot),
        *(Text(note, style="yellow") for note in snapshot.notes),
        Text(
            "Accounts and phases are guessed from the stacks of allocations, unless the snapshot has categories.",
            style="dim",
        ),
    )


def _refused(snapshot: MemorySnapshot) -> list[RenderableType]:
    refused = snapshot.refused
    if refused is None:
        return []
    free = "" if refused.device_free_bytes is None else f", {bytes_text(refused.device_free_bytes)} free on the device"
    at = "" if refused.place is None else f", at {_line(refused.place)}"
    return [Text(f"out of memory: {bytes_text(refused.asked_bytes)} were asked for{free}{at}", style="bold red")]


def _accounts(snapshot: MemorySnapshot) -> RenderableType:
    rows: dict[tuple[str, str], list[Held]] = {}
    for each in snapshot.held:
        rows.setdefault((each.account, each.phase), []).append(each)
    table = table_of("account", "phase", "bytes", "share", "most of it in")
    table.columns[1].justify = table.columns[4].justify = "left"
    for (account, phase), held in sorted(rows.items(), key=lambda row: -_bytes(row[1])):
        modules = ", ".join([each.module for each in held if each.module][:_MODULES])
        share = _bytes(held) / max(1, snapshot.requested_bytes)
        table.add_row(account, phase or "-", bytes_text(_bytes(held)), f"{share:.1%}", modules)
    return table


def _planned(snapshot: MemorySnapshot) -> list[RenderableType]:
    """Each account beside the plan's. A snapshot may be of another moment than the peak."""
    if not snapshot.planned:
        return []
    found: dict[str, int] = {}
    for each in snapshot.held:
        found[each.account] = found.get(each.account, 0) + each.bytes
    planned = {each.account: each.bytes for each in snapshot.planned}
    table = table_of("account", "in the snapshot", "at the planned peak", "difference")
    for account in (*planned, *(each for each in found if each not in planned)):
        table.add_row(account, *_beside(found.get(account, 0), planned.get(account, 0)))
    table.add_row("reserved", *_beside(snapshot.reserved_bytes, snapshot.planned_reserved_bytes))
    return [Text(), table]


def _beside(found: int, planned: int) -> tuple[str, str, str]:
    sign = "-" if found < planned else "+" if found > planned else ""
    return bytes_text(found), bytes_text(planned), sign + bytes_text(abs(found - planned))


def _bytes(held: list[Held]) -> int:
    return sum(each.bytes for each in held)


def _reserved(snapshot: MemorySnapshot) -> RenderableType:
    table = table_of("reserved", "bytes", "")
    table.columns[2].justify = "left"
    known = snapshot.requested_bytes - snapshot.unattributed_bytes
    rows = (
        ("in an account", known, ""),
        ("in no account", snapshot.unattributed_bytes, counted(snapshot.unattributed_blocks, "block")),
        ("rounding", snapshot.rounding_bytes, "blocks are larger than what was asked for"),
        ("awaiting free", snapshot.awaiting_bytes, "another stream still uses it"),
        ("fragmented", snapshot.fragmented_bytes, "free, in segments that are in use"),
        ("cached", snapshot.cached_bytes, "free, in unused segments: torch.cuda.empty_cache() returns it"),
        ("uncovered", snapshot.uncovered_bytes, "in segments, and in no block of theirs"),
    )
    for name, size, said in rows:
        if size:
            table.add_row(name, bytes_text(size), said)
    return table


def _largest(snapshot: MemorySnapshot) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(), Text("largest blocks", style="bold")] if snapshot.largest else []
    for each in snapshot.largest[:_LARGEST]:
        times = f" in {counted(each.count, 'block')}" if each.count > 1 else ""
        of = "".join(f", {part}" for part in (each.phase, each.module, each.operator) if part)
        lines.append(Text(f"  {bytes_text(each.bytes)}{times}: {each.account}{of}"))
        lines += [] if each.place is None else [Text(f"    {_line(each.place)}", style="dim")]
    return lines


def _emptiest(snapshot: MemorySnapshot) -> list[RenderableType]:
    if not snapshot.emptiest:
        return []
    table = table_of("segments with most free memory", "size", "free", "largest free block", "blocks")
    for each in snapshot.emptiest:
        sizes = (each.total_bytes, each.free_bytes, each.largest_free_bytes)
        table.add_row(f"GPU {each.device}, {each.address:#x}", *map(bytes_text, sizes), f"{each.blocks:,}")
    return [Text(), table]


def _line(place: Place) -> str:
    return f"{os.path.basename(place.file)}:{place.line} {place.code}"
