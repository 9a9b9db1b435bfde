"""An out-of-memory error as text: the cause, what held the memory, the largest tensors, the batch, what would fit."""

from __future__ import annotations

import os

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.costs.out_of_memory import cause_of, setting_text
from surefoot.records.explanation import Place
from surefoot.records.out_of_memory import LiveTensor, OutOfMemory
from surefoot.reports.parts import table_of
from surefoot.units import bytes_text

_MODULES = 3
"""How many modules of an account are named."""
_TENSORS = 5
_WIDEST = 80


def out_of_memory_text(record: OutOfMemory) -> RenderableType:
    """The cause in one paragraph, the figures behind it, and what to change."""
    cause = cause_of(record)
    at = f" ({_place(record.place)})" if record.place is not None else ""
    named = [Text(f"    {_line(each)}", style="dim") for each in cause.places]
    return Group(
        Text.assemble((f"Explained{at}: ", "bold"), f"{_where(record)} {cause.said}"),
        *named,
        *_accounts(record),
        *_largest(record),
        *map(Text, _facts(record)),
        *(Text(f"  {note}", style="yellow") for note in record.notes),
        Text.assemble(("Fix: ", "bold"), cause.remedy),
        *(Text(f"  {each.command}", style="cyan") for each in record.fits),
    )


def _where(record: OutOfMemory) -> str:
    doing = f" in {record.phase}" if record.phase else ""
    of = f" of `{record.module}`" if record.module else ""
    step = f" of step {record.step}" if record.step else ""
    asked = "" if record.asked_bytes is None else f": {bytes_text(record.asked_bytes)} were asked for"
    used = "" if record.live_bytes is None else f", {bytes_text(record.live_bytes)} were in use"
    limit = "" if record.limit_bytes is None else f", {bytes_text(record.limit_bytes)} are allowed"
    return f"out of memory{doing}{of}{step}{asked}{used}{limit}."


def _accounts(record: OutOfMemory) -> list[RenderableType]:
    amounts = record.by_account()
    if not amounts:
        return []
    whole = max(1, record.live_bytes or sum(amounts.values()))
    table = table_of("  live", "bytes", "share", "made in", "most of it in")
    table.columns[3].justify = table.columns[4].justify = "left"
    for account, size in amounts.items():
        phases = {each.phase: None for each in record.held if each.account == account and each.phase}
        modules = [name for name in record.by_module(account) if name][:_MODULES]
        table.add_row(f"  {account}", bytes_text(size), f"{size / whole:.0%}", ", ".join(phases), ", ".join(modules))
    return [table]


def _largest(record: OutOfMemory) -> list[RenderableType]:
    if not record.largest:
        return []
    return [Text("  largest tensors:"), *(line for each in record.largest[:_TENSORS] for line in _tensor(each))]


def _tensor(each: LiveTensor) -> list[Text]:
    times = f"{each.count} x " if each.count > 1 else ""
    of = f" of {each.module}" if each.module else ""
    kept = f", kept from {each.kept_steps} earlier steps" if each.kept_steps else ""
    by = f" by {each.operator.removeprefix('aten.').partition('.')[0]}" if each.operator else ""
    lines = [Text(f"    {bytes_text(each.bytes)}: {times}{each.tensor}{by}, {each.account}{of}, {each.phase}{kept}")]
    return lines if each.place is None else [*lines, Text(f"      {_line(each.place)}", style="dim")]


def _facts(record: OutOfMemory) -> list[str]:
    lines, batch = [], record.batch
    if batch.shapes:
        usual = f"; usual: {', '.join(batch.usual)}" if batch.is_unusual else ""
        lines.append(f"  batch: {', '.join(batch.shapes)}{usual}")
    if record.planned_bytes is not None:
        of = f" for {record.planned_batch}" if record.planned_batch else ""
        outside = f"; {bytes_text(record.outside_bytes)} are used outside the step" if record.outside_bytes else ""
        lines.append(f"  plan: a peak of {bytes_text(record.planned_bytes)}{of}{outside}")
    for each in record.fits[1:]:
        lines.append(f"  also fits: {setting_text(each)}, {bytes_text(each.planned_bytes)} planned")
    return lines


def _place(place: Place) -> str:
    return f"{os.path.basename(place.file)}:{place.line}"


def _line(place: Place) -> str:
    code = place.code if len(place.code) <= _WIDEST else f"{place.code[: _WIDEST - 1]}…"
    return f"{_place(place)}  {code}"
