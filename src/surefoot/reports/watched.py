"""A watched script as text: the memory, FLOPs and time of its steps, its costs and its findings."""

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.costs.diagnosis import diagnose, said_once
from surefoot.records.units import bytes_text, count_text, counted, flops_text, seconds_text
from surefoot.records.usage import Usage
from surefoot.records.watched import Watched
from surefoot.reports.findings import findings_text
from surefoot.reports.gather import signs_of_watched
from surefoot.reports.profile import by_amount
from surefoot.reports.usage import usage_text


def watched_text(watched: Watched) -> RenderableType:
    """The cost of an unchanged script, what to change first, and the findings."""
    seen = f"{watched.script}: {counted(watched.steps, 'step')} of {', '.join(watched.models) or 'no model'}"
    parts: list[RenderableType] = [Text(seen, style="bold")]
    if watched.failure:
        told = f"nothing was measured to the end, because surefoot failed: {watched.failure}. Please report it."
        parts.append(Text(told, style="red"))
    elif watched.first is None or watched.steady is None:
        parts.append(Text("no optimizer made an update, so no step was measured", style="yellow"))
    elif not watched.steps:
        parts.append(_inference(watched.steady))
    else:
        parts.append(Text(f"{count_text(watched.parameters)} parameters"))
        parts.append(usage_text(watched.first, watched.steady))
        parts += _pace(watched)
    diagnosed = diagnose(signs_of_watched(watched))
    beside = replace(watched.findings, findings=said_once(watched.findings.findings, diagnosed))
    return Group(*parts, Text(), findings_text(beside, costs=diagnosed))


def _inference(usage: Usage) -> RenderableType:
    """What a script took that made no update."""
    peak = f"{bytes_text(usage.peak.peak_bytes)} at the peak, in {usage.peak.module or usage.peak.phase}"
    return Text(f"no optimizer made an update; the whole script: {peak}; {flops_text(usage.tally.total('flops'))}")


def _pace(watched: Watched) -> list[RenderableType]:
    """The seconds by phase of the steps that only the clock measured."""
    if not watched.step_seconds:
        return []
    seconds = sum(watched.step_seconds) / len(watched.step_seconds)
    shares = "  ".join(f"{name} {amount / seconds:.0%}" for name, amount in by_amount(watched.clock.under("seconds")))
    return [Text(f"\nstep {seconds_text(seconds)}  {shares}")]
