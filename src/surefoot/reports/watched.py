"""A watched script as text: the memory, FLOPs and time of its steps, its costs and its findings."""

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.costs.diagnosis import diagnose, said_once
from surefoot.records.units import count_text, counted, seconds_text
from surefoot.records.watched import Watched
from surefoot.reports.findings import findings_text
from surefoot.reports.gather import signs_of_watched
from surefoot.reports.profile import by_amount, changes_text
from surefoot.reports.usage import usage_text


def watched_text(watched: Watched) -> RenderableType:
    """What an unchanged script took, what to change first, and what the checks found."""
    seen = f"{watched.script}: {counted(watched.steps, 'step')} of {', '.join(watched.models) or 'no model'}"
    parts: list[RenderableType] = [Text(seen, style="bold")]
    if watched.first is None or watched.steady is None:
        parts.append(Text("no optimizer made an update, so no step was booked", style="yellow"))
    else:
        parts.append(Text(f"{count_text(watched.parameters)} parameters"))
        parts.append(usage_text(watched.first, watched.steady))
        parts += _pace(watched)
    signs = signs_of_watched(watched)
    diagnosed = diagnose(signs)
    beside = replace(watched.findings, findings=said_once(watched.findings.findings, diagnosed))
    return Group(*parts, *changes_text(signs), findings_text(beside, costs=len(diagnosed)))


def _pace(watched: Watched) -> list[RenderableType]:
    """How long the steps took that only the clock measured, by phase."""
    if not watched.step_seconds:
        return []
    seconds = sum(watched.step_seconds) / len(watched.step_seconds)
    shares = "  ".join(f"{name} {amount / seconds:.0%}" for name, amount in by_amount(watched.clock.under("seconds")))
    return [Text(f"\nstep {seconds_text(seconds)}  {shares}")]
