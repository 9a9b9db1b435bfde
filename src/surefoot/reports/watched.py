"""A watched script as text: its findings and costs, then how many steps it made; on request, memory, FLOPs and time."""

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.costs.diagnosis import diagnose, said_once
from surefoot.records.usage import Usage
from surefoot.records.watched import Watched
from surefoot.reports.findings import Infos, coverage_text, findings_list, findings_number
from surefoot.reports.gather import signs_of_watched
from surefoot.reports.profile import by_amount
from surefoot.reports.splits import splits_text
from surefoot.reports.usage import usage_text
from surefoot.units import bytes_text, count_text, counted, flops_text, seconds_text


def watched_text(watched: Watched, *, tables: bool = False, infos: bool = False) -> RenderableType:
    """The findings of an unchanged script, then its steps. Memory, FLOPs and seconds by phase with `tables`."""
    costs = diagnose(signs_of_watched(watched))
    found = replace(watched.findings, findings=said_once(watched.findings.findings, costs))
    shown: Infos = "lines" if infos else "number"
    listed = findings_list(found, costs=costs, infos=shown)
    number = findings_number(found, costs=costs, infos=shown, option="--infos")
    measured = _usage(watched) if tables else []
    shares = _shares(watched) if tables else []
    if number and not (listed or watched.trained or watched.steady or watched.failure):
        return Text(_untrained(watched), style="yellow")
    numbered = [Text(number, style="" if listed or found.unknown_losses else "green")] if number else []
    return Group(
        *listed,
        Text(_steps(watched), style="bold"),
        *_unmeasured(watched),
        *measured,
        *shares,
        *([] if watched.data is None else [splits_text(watched.data)]),
        *([Text()] if measured or watched.data is not None else []),
        *coverage_text(found),
        *([] if watched.trained or not number else [Text(_untrained(watched), style="yellow")]),
        *(numbered if watched.trained or listed else []),
    )


def _usage(watched: Watched) -> list[RenderableType]:
    """Memory and FLOPs of the steps, if there were any."""
    first, steady = watched.first, watched.steady
    return [usage_text(first, steady)] if watched.steps and first is not None and steady is not None else []


def _steps(watched: Watched) -> str:
    said = f"{watched.script}: {counted(watched.steps, 'step')} of {', '.join(watched.models) or 'no model'}"
    return said + (f", {count_text(watched.parameters)} parameters" if watched.parameters else "")


def _untrained(watched: Watched) -> str:
    return (
        f"{watched.script}: no training was seen: no backward pass and no optimizer step ran in this process, so "
        f"{counted(len(watched.findings.checks), 'check')} had nothing to look at. If the script trains only with "
        "arguments, write them after --. If it starts other processes that train, start those with torchrun."
    )


def _unmeasured(watched: Watched) -> list[RenderableType]:
    if watched.failure:
        told = f"nothing was measured to the end, because surefoot failed: {watched.failure}. Please report it."
        return [Text(told, style="red")]
    if watched.first is None and watched.steps:
        return [Text("its first step was too long to measure within --overhead", style="yellow")]
    if watched.first is None or watched.steady is None:
        return [Text("no optimizer made an update, so no step was measured", style="yellow")]
    return [] if watched.steps else [_inference(watched.steady)]


def _inference(usage: Usage) -> RenderableType:
    """What a script took that made no update."""
    peak = f"{bytes_text(usage.peak.peak_bytes)} at the peak, in {usage.peak.module or usage.peak.phase}"
    return Text(f"no optimizer made an update; the whole script: {peak}; {flops_text(usage.tally.total('flops'))}")


def _shares(watched: Watched) -> list[RenderableType]:
    """The seconds by phase of the steps that only the clock measured."""
    if not watched.step_seconds:
        return []
    seconds = sum(watched.step_seconds) / len(watched.step_seconds)
    shares = "  ".join(f"{name} {amount / seconds:.0%}" for name, amount in by_amount(watched.clock.under("seconds")))
    return [Text(f"\nstep {seconds_text(seconds)}  {shares}")]
