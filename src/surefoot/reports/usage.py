"""The memory and FLOPs of a step as text: its peak, by account, by phase and by module."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.costs.trace_time import OUTSIDE
from surefoot.records.tally import Tally
from surefoot.records.usage import Peak, Usage
from surefoot.reports.modules import by_module, numbered
from surefoot.reports.parts import table_of
from surefoot.units import amount_text, bytes_text, flops_text

PHASES = ("init", "resume", "load", "forward", "loss", "backward", "update", "evaluate")
MODULES_SHOWN = 8


def usage_text(
    first: Usage, steady: Usage, *, around: dict[str, Peak] | None = None, absent: dict[str, str] | None = None
) -> RenderableType:
    """The first and a steady step.

    `around` holds the peaks of other phases, before and after the steps. `absent` says why a phase has none.
    """
    return Group(
        Text(f"\nmemory  {bytes_text(steady.peak.peak_bytes)} at the peak of a steady step", style="bold"),
        Text(f"        {_moment(steady.peak)}"),
        Text(f"        first step: {bytes_text(first.peak.peak_bytes)}, {_moment(first.peak)}", style="dim"),
        _shares(steady.tally, "memory"),
        Text("\npeak by phase", style="bold"),
        _phase_peaks({**(around or {}), **steady.phase_peaks}, absent or {}),
        Text(f"\ncompute  {flops_text(steady.tally.total('flops'))} per step", style="bold"),
        _shares(steady.tally, "flops"),
        _modules(steady.tally),
    )


def _moment(peak: Peak) -> str:
    inside = f" of {peak.module}" if peak.module else ""
    return f"in {peak.phase}{inside}" + (f", after {peak.operator}" if peak.operator else "")


def _shares(tally: Tally, name: str) -> RenderableType:
    """The accounts below a name, largest first, with their share."""
    total, unit = tally.total(name), {"memory": "bytes", "flops": "FLOP"}[name]
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(justify="right", min_width=12)
    table.add_column(justify="right")
    for part, amount in sorted(tally.under(name).items(), key=lambda item: -item[1]):
        table.add_row(part, amount_text(amount, unit), f"{amount / total:.1%}" if total else "")
    return Padding(table, (0, 0, 0, 2), expand=False)


def _phase_peaks(peaks: dict[str, Peak], absent: dict[str, str]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(justify="right", min_width=12)
    table.add_column()
    for phase in sorted(peaks, key=lambda phase: (*PHASES, phase).index(phase)):
        table.add_row(phase, bytes_text(peaks[phase].peak_bytes), peaks[phase].operator)
    for phase, why in absent.items():
        table.add_row(phase, "", why)
    return Padding(table, (0, 0, 0, 2), expand=False)


def _modules(tally: Tally) -> RenderableType:
    """The modules that take the most. Siblings with the same amounts share one row."""
    memory, flops = by_module(tally, "memory", numbered), by_module(tally, "flops", numbered)
    alike: dict[tuple[str, float, float], list[str]] = {}
    for name in sorted({*memory, *flops}, key=lambda name: (len(name), name)):
        parent = name.rpartition(".")[0] if "." in name else name
        alike.setdefault((parent, memory.get(name, 0), flops.get(name, 0)), []).append(name)
    rows = sorted(alike.items(), key=lambda row: (-len(row[1]) * row[0][1], -len(row[1]) * row[0][2]))
    table = table_of("module", "memory at peak", "FLOPs", "")
    for (_, each_memory, each_flops), names in rows[:MODULES_SHOWN]:
        shown = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
        times = "" if len(names) == 1 else f"each of {len(names)}"
        table.add_row(shown or OUTSIDE, bytes_text(each_memory), flops_text(each_flops), times)
    rest = [name for _, names in rows[MODULES_SHOWN:] for name in names]
    if rest:
        total = (sum(kind.get(name, 0) for name in rest) for kind in (memory, flops))
        table.add_row(f"{len(rest)} more", bytes_text(next(total)), flops_text(next(total)), "together")
    return Padding(table, (1, 0, 0, 0), expand=False)
