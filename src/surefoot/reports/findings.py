"""Findings as text: each with its remedy, and their number; or one line if there are none."""

from collections.abc import Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.finding import Finding, Findings
from surefoot.reports.parts import finding_line, finding_text
from surefoot.reports.source_lines import place_text
from surefoot.units import counted

Infos = Literal["whole", "lines", "number"]
"""How much of an info is shown: all of it, one line, or only how many there are."""


def findings_text(findings: Findings, *, costs: Sequence[Finding] = (), infos: Infos = "whole") -> RenderableType:
    """Every finding with its remedy, errors first, then what costs time or memory; at the end their number."""
    shown = findings_list(findings, costs=costs, infos=infos)
    number = findings_number(findings, costs=costs, infos=infos)
    style = "" if shown or findings.unknown_losses else "green"
    return Group(*shown, *coverage_text(findings), *([Text(number, style=style)] if number else []))


def findings_list(findings: Findings, *, costs: Sequence[Finding], infos: Infos) -> list[RenderableType]:
    """The findings and costs without their number. Infos come last, unless they are shown whole."""
    if findings.failure:
        told = f"{findings.recipe}: the checks did not finish, because surefoot failed: {findings.failure}."
        return [Text(f"{told} SUREFOOT_RAISE=1 shows the whole traceback; please report it.", style="red")]
    every = [*findings.by_severity, *costs]
    if infos == "whole":
        return [finding_text(each) for each in every]
    lines = [finding_line(each) for each in every if each.severity == "info" and infos == "lines"]
    return [*(finding_text(each) for each in every if each.severity != "info"), *lines, *([Text()] if lines else [])]


def findings_number(findings: Findings, *, costs: Sequence[Finding], infos: Infos, option: str = "") -> str:
    """How many findings there are, by how many checks. Infos are counted apart, unless they are shown whole.

    `option` shows the infos that are only counted.
    """
    if findings.failure:
        return ""
    apart = [each for each in (*findings.findings, *costs) if each.severity == "info" and infos != "whole"]
    found, beside = (len([each for each in some if each not in apart]) for some in (findings.findings, costs))
    looked = [name for name in findings.checks if name not in findings.allowed]
    unknown = f", but {findings.unknown_losses[0]} was not understood" if findings.unknown_losses and not found else ""
    said = counted(found, "finding") if found else "nothing found"
    said = f"{findings.recipe}: {said} by {counted(len(looked), 'check')}"
    said += unknown + (f"; {counted(beside, 'cost')}" if beside else "") + _first(findings, apart) + "."
    if apart and infos == "number":
        said += f" {counted(len(apart), 'info')} not shown{option and f': see {option}'}."
    said += f" Allowed: {', '.join(findings.allowed)}." if findings.allowed else ""
    return said + (
        f" {counted(len(findings.skipped), 'probe')} could not run; --json says why." * bool(findings.skipped)
    )


def _first(findings: Findings, apart: Sequence[Finding]) -> str:
    """The gravest finding with its place, so that the line can be read alone."""
    shown = [each for each in findings.by_severity if each not in apart]
    if not shown:
        return ""
    first = shown[0]
    mark = first.marks[0] if first.marks else None
    place = place_text(mark.file, mark.line) if mark is not None else first.where
    return f"{'; the first' * (len(shown) > 1)}: {first.check} at {place}"


def coverage_text(findings: Findings) -> list[RenderableType]:
    """One line: the parts that were examined, and those that were not; none if that is not known."""
    seen, unseen = ", ".join(findings.examined), "; ".join(findings.not_examined)
    said = [f"examined: {seen}."] * bool(seen) + [f"not examined: {unseen}."] * bool(unseen)
    return [Text(" ".join(said), style="dim")] if said else []
