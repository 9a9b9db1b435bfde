"""Findings as text: each with its remedy, and a count of them; or that nothing was found."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.finding import Findings
from surefoot.records.units import counted
from surefoot.reports.parts import finding_text


def findings_text(findings: Findings, *, costs: int = 0) -> RenderableType:
    """Every finding with its remedy; one line if there is none. `costs` is the number of costs printed above them."""
    if findings.failure:
        told = f"{findings.recipe}: the checks say nothing, for surefoot failed: {findings.failure}."
        return Text(f"{told} SUREFOOT_RAISE=1 raises it with its traceback; please report it.", style="red")
    looked = [name for name in findings.checks if name not in findings.allowed]
    allowed = f" Allowed: {', '.join(findings.allowed)}." if findings.allowed else ""
    skipped = f" {counted(len(findings.skipped), 'probe')} could not run; --json says why." if findings.skipped else ""
    name = f"{findings.recipe}: " + (f"{counted(costs, 'cost')} named above; " if costs else "")
    if not findings.findings:
        return Text(f"{name}nothing found by {counted(len(looked), 'check')}.{allowed}{skipped}", style="green")
    found = counted(len(findings.findings), "finding")
    count = f"{name}{found} by {counted(len(looked), 'check')}.{allowed}{skipped}"
    return Group(*(finding_text(finding) for finding in findings.findings), Text(count))
