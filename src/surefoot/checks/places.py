"""Places: moves a finding from a line that only starts a library's loop to one that the user can change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from surefoot.checks.loop.driver import Driver
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.registry import subject_of
from surefoot.records.finding import Finding, Findings

if TYPE_CHECKING:
    from surefoot.checks.watcher import Watcher


def placed(watcher: Watcher, found: Findings) -> Findings:
    """The findings, each at a line that the user can change or with the library that runs the loop."""
    driver, losses = watcher[Driver], {each.where for each in watcher[Losses].losses}
    return replace(found, findings=tuple(_placed(each, driver, losses) for each in found.findings))


def _placed(finding: Finding, driver: Driver, losses: set[str]) -> Finding:
    if not driver.line or finding.where != driver.line:
        return finding
    own = losses - {driver.line}
    if subject_of(finding.check) == "losses" and len(own) == 1:
        return replace(finding, where=own.pop())
    remedy = f"{finding.remedy}; {driver.library} does this: use its settings, or override its method"
    return replace(finding, where=f"{finding.where} ({driver.library})", remedy=remedy)
