"""The memory at a plan's peak as one bar: the largest accounts, what the allocator adds, and what stays free."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from surefoot.records.plan import Plan
from surefoot.units import bytes_text

WIDTH = 68
"""Columns of the bar: with its label it fits a terminal of 80."""
SHOWN = 4
_LOOKS = (("█", "cyan"), ("▓", "magenta"), ("▒", "yellow"), ("░", "green"))
_REST, _BEFORE, _ALLOCATOR, _FREE = ("=", "blue"), ("+", "red"), ("-", "dim"), (" ", "")
_UNBROKEN = "\u00a0"


@dataclass(frozen=True)
class _Part:
    name: str
    size_bytes: float
    look: tuple[str, str]


def memory_bar(plan: Plan) -> list[Text]:
    """The bar and its legend. It is as long as the device's memory, or as what the step takes, if that is more."""
    parts = _parts(plan)
    taken = sum(part.size_bytes for part in parts)
    whole = max(taken, plan.fit.memory_bytes if plan.fit is not None else 0)
    bar = Text("[", style="dim")
    for part, columns in zip(parts, _columns([part.size_bytes for part in parts], whole), strict=True):
        bar.append(part.look[0] * columns, style=part.look[1])
    bar.append(_FREE[0] * (1 + WIDTH - len(bar)))
    bar.append("]", style="dim")
    return [bar, *_legend(parts)]


def _parts(plan: Plan) -> list[_Part]:
    sizes = sorted(plan.steady.tally.under("memory").items(), key=lambda item: -item[1])
    parts = [_Part(name, size, look) for (name, size), look in zip(sizes[:SHOWN], _LOOKS, strict=False)]
    rest = sum(size for _, size in sizes[SHOWN:])
    parts += [_Part("other", rest, _REST)] if rest else []
    before = plan.live_bytes - plan.steady.peak.peak_bytes
    where = "in the first step" if plan.live_bytes == plan.first.peak.peak_bytes else "while it is built"
    added = 0 if plan.fit is None else plan.fit.total_bytes - plan.live_bytes
    more = (_Part(f"more {where}", before, _BEFORE), _Part("allocator and CUDA", added, _ALLOCATOR))
    return parts + [part for part in more if part.size_bytes > 0]


def _columns(sizes: Sequence[float], whole: float) -> list[int]:
    """The columns of each part. They are rounded at their ends, so that together they are as long as their sum."""
    ends = [round(WIDTH * sum(sizes[: index + 1]) / whole) if whole else 0 for index in range(len(sizes))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _legend(parts: Sequence[_Part]) -> list[Text]:
    """The name and bytes of each part. A line never breaks inside of one."""
    entries = [f"{part.look[0]} {part.name} {bytes_text(part.size_bytes)}".replace(" ", _UNBROKEN) for part in parts]
    lines = textwrap.wrap(
        " ".join(f"{entry}{_UNBROKEN}" for entry in entries), WIDTH, break_long_words=False, break_on_hyphens=False
    )
    made = [Text(line.replace(_UNBROKEN, " ").rstrip()) for line in lines]
    for line in made:
        for part in parts:
            line.highlight_words([f"{part.look[0]} "], style=part.look[1])
    return made
