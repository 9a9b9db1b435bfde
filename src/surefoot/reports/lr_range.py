"""The learning-rate range test as text, with its curve."""

import math

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.lr_range import LrRange
from surefoot.reports.braille import curve
from surefoot.reports.parts import title
from surefoot.units import counted

WIDTH, HEIGHT, MARGIN = 72, 12, 9


def lr_range_text(found: LrRange) -> RenderableType:
    """The suggested rate, the curve it was read from, and how the curve was measured."""
    return Group(
        title(found.recipe, found.knobs),
        Text(_answer(found), style="bold"),
        Text(),
        *_plot(found),
        Text(),
        *(Text(f"the loss {reading}") for reading in _readings(found)),
        Text(_method(found), style="dim"),
    )


def _answer(found: LrRange) -> str:
    if found.suggested_lr is None:
        return f"no rate to suggest: the loss falls at none; the recipe's own is {found.own_lr:.3g}"
    times = found.own_lr / found.suggested_lr
    return f"suggested lr {found.suggested_lr:.2g}; the recipe's own, {found.own_lr:.3g}, is {times:.3g} times that"


def _readings(found: LrRange) -> list[str]:
    readings = []
    if found.steepest_lr is not None:
        readings.append(f"falls fastest at lr {found.steepest_lr:.2g}")
    if found.edge_lr is not None:
        beyond = "; the recipe's own rate lies beyond" if found.own_lr >= found.edge_lr else ""
        edge = f"{found.edge_lr:.2g}; one order below is {found.edge_lr / 10:.2g}{beyond}"
        readings.append(f"has lost half of its gain at lr {edge}")
    last = f"lr {found.points[-1].lr:.2g}"
    told = {"at the last rate": f"has not diverged at {last}", "not finite": f"is not finite after {last}"}
    return [*readings, told.get(found.ended, f"diverges at {last}")]


def _method(found: LrRange) -> str:
    share = f" (1/{found.micro_batches} of a training step)" if found.micro_batches > 1 else ""
    return (
        f"{len(found.points)} of {counted(found.steps, 'step')} from lr {found.first_lr:g} to {found.last_lr:g}, "
        f"each of {counted(found.samples, 'sample')}{share}; a fresh model, the recipe's schedule switched off"
    )


def _plot(found: LrRange) -> list[Text]:
    """The smoothed loss over the rate's logarithm, and below it the rates that were read from it."""
    at = [math.log10(point.lr) for point in found.points]
    losses = [point.smooth_loss for point in found.points]
    labels = {HEIGHT - 1: f"{min(losses):.3g}"} | ({0: f"{max(losses):.3g}"} if max(losses) > min(losses) else {})
    lines = [
        Text.assemble(f"{labels.get(row, ''):>{MARGIN - 2}} ", ("│", "dim"), (line, "cyan"))
        for row, line in enumerate(curve(at, losses, width=WIDTH, height=HEIGHT))
    ]
    return [*lines, *_axis(found, at[0], at[-1])]


def _axis(found: LrRange, first: float, last: float) -> list[Text]:
    def column(power: float) -> int:
        return round((power - first) / max(last - first, 1e-9) * (WIDTH - 1))

    decades = {column(power): f"1e{power}" for power in range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)}
    ticks = "".join("┴" if index in decades else "─" for index in range(WIDTH))
    rates = {"own": found.own_lr, "falls fastest": found.steepest_lr, "half of the gain is lost": found.edge_lr}
    marks = sorted((column(math.log10(rate)), name) for name, rate in rates.items() if rate)
    return [
        Text(" " * (MARGIN - 1) + "└" + ticks, style="dim"),
        _placed(decades, "dim"),
        *(_pointing(at, name) for at, name in marks if 0 <= at < WIDTH),
    ]


def _pointing(column: int, name: str) -> Text:
    """An arrow up to a column, with its name on the side that has room."""
    on_the_left = column > WIDTH // 2
    return _placed({column - len(name) - 1: f"{name} ↑"} if on_the_left else {column: f"↑ {name}"}, "")


def _placed(words: dict[int, str], style: str) -> Text:
    """Words that begin at their columns."""
    line = ""
    for column, word in sorted(words.items()):
        line = line.ljust(MARGIN + column) + word
    return Text(line, style=style)
