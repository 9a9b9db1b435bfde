"""Findings as text: each with its remedy, and their number; or one line if there are none."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.finding import Finding, Findings
from surefoot.records.units import counted
from surefoot.reports.parts import finding_text


def findings_text(findings: Findings, *, costs: Sequence[Finding] = ()) -> RenderableType:
    """Every finding with its remedy, errors first, then what costs time or memory; at the end their number."""
    if findings.failure:
        told = f"{findings.recipe}: the checks did not finish, because surefoot failed: {findings.failure}."
        return Text(f"{told} SUREFOOT_RAISE=1 shows the whole traceback; please report it.", style="red")
    shown = [*findings.by_severity, *costs]
    return Group(*map(finding_text, shown), Text(_number(findings, len(costs)), style="" if shown else "green"))


def _number(findings: Findings, costs: int) -> str:
    looked = [name for name in findings.checks if name not in findings.allowed]
    found = counted(len(findings.findings), "finding") if findings.findings else "nothing found"
    beside = f"; {counted(costs, 'cost')}" if costs else ""
    allowed = f" Allowed: {', '.join(findings.allowed)}." if findings.allowed else ""
    skipped = f" {counted(len(findings.skipped), 'probe')} could not run; --json says why." if findings.skipped else ""
    return f"{findings.recipe}: {found} by {counted(len(looked), 'check')}{beside}.{allowed}{skipped}"
