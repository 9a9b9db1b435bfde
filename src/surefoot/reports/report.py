"""A report on one or more runs as text: did each go as planned, what to change first, and the findings."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.report import Report
from surefoot.records.run import Run
from surefoot.reports.ledger import ledger_text
from surefoot.reports.out_of_memory import out_of_memory_text
from surefoot.reports.parts import finding_text
from surefoot.reports.profile import where_text
from surefoot.reports.run import run_text
from surefoot.units import seconds_text


def report_text(report: Report, runs: Sequence[Run]) -> RenderableType:
    """For each run: the answer in one line, then its log, its ledger and its findings."""
    parts: list[RenderableType] = []
    for sheet in report.sheets:
        parts += [Text()] if parts else []
        change = "nothing to change first" if sheet.first is None else f"change first: {sheet.first.remedy}"
        parts.append(Text(f"{sheet.headline} {change[0].upper() + change[1:]}.", style="bold"))
        parts += [run_text(run) for run in runs if run.path == sheet.path]
        parts += [] if sheet.out_of_memory is None else [Text(), out_of_memory_text(sheet.out_of_memory)]
        if sheet.modules:
            step = f"\nprofiled step {seconds_text(sum(sheet.phase_seconds.values()))}"
            parts += [Text(step, style="bold"), *where_text(sheet.phase_seconds, sheet.modules, sheet.operators)]
        parts += [Text(), ledger_text(sheet.ledger)] if sheet.ledger.entries else []
        found = sheet.findings.by_severity if sheet.findings else ()
        parts += [Text(), *(finding_text(finding) for finding in found)] if found else []
    return Group(*parts)
