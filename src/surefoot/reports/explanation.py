"""An explanation as text, below the traceback of the error: the cause, what met and the lines it came from."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.explanation import Explanation, Met, Place

_WIDEST = 100
_MOST_LINES = 6
"""The most lines that are shown for one value."""
_BESIDE = ("bias", "running_mean", "running_var", "num_batches_tracked")
"""Parameters and buffers that are shown only where their type or device is another than the weight's."""


def explanation_text(explanation: Explanation) -> RenderableType:
    """The cause in one paragraph, then each value with the lines that made it, then what to change."""
    raised, cause = explanation.raised, explanation.cause
    at = f" ({os.path.basename(raised.place.file)}:{raised.place.line})" if raised.place is not None else ""
    met_in = f"what met in `{raised.function}`:" if raised.function else "what met:"
    lines = [Text.assemble((f"Explained{at}: ", "bold"), cause.said if cause is not None else met_in)]
    named: set[Place] = {raised.place} if raised.place is not None else set()
    for each in _shown(raised.met):
        lines += [Text(f"  {_met(each)}"), *_lines(_nearest_and_farthest(each.made), named)]
    failed = raised.module is not None and raised.function == raised.module.kind
    if failed and raised.module is not None and (own := _lines(raised.module.made, named)):
        lines += [Text(f"  {raised.module.path or raised.module.kind} ({raised.module.kind}):"), *own]
    lines += _lines(cause.places, named) if cause is not None else []
    if cause is not None:
        lines.append(Text.assemble(("Fix: ", "bold"), cause.remedy))
    return Group(*lines)


def _nearest_and_farthest(made: tuple[Place, ...]) -> tuple[Place, ...]:
    """Of a long way from a value to where it began, both ends."""
    return made if len(made) <= _MOST_LINES else (*made[: _MOST_LINES - 2], *made[-2:])


def _shown(met: tuple[Met, ...]) -> list[Met]:
    weight = next((each for each in met if each.role == "weight"), None)
    others = [each for each in met if each.is_tensor or each.shapes or each.made or each.value]
    if weight is None:
        return others
    return [e for e in others if e.role not in _BESIDE or (e.device != weight.device)]


def _met(met: Met) -> str:
    role = (
        f"{met.role} " if met.role and met.role not in (met.name.rpartition(".")[2], met.name[: len(met.role)]) else ""
    )
    if met.is_tensor:
        sizes = f"({', '.join(map(str, met.shape or ()))}{',' if len(met.shape or ()) == 1 else ''})"
        held = f", {met.low} to {met.high}" if met.low is not None else ""
        return f"{role}{met.name}: {sizes} {met.dtype} {met.device}{held}"
    if met.value:
        return f"{role}{met.name} = {met.value}"
    return f"{role}{met.name}: {met.kind}" + (f" of {', '.join(map(str, met.shapes))}" if met.shapes else "")


def _lines(places: Iterable[Place], named: set[Place]) -> list[Text]:
    """The lines that were not named before."""
    found = []
    for each in places:
        if each not in named:
            named.add(each)
            code = each.code if len(each.code) <= _WIDEST else f"{each.code[: _WIDEST - 1]}…"
            found.append(Text(f"    {os.path.basename(each.file)}:{each.line}  {code}", style="dim"))
    return found
