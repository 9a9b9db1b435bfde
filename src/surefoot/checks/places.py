"""Places: moves a finding from a line that only starts a library's loop to one that the user can change."""

from __future__ import annotations

from dataclasses import replace

from surefoot.checks.engine.assembly import Observers
from surefoot.checks.loop.driver import Driver
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.registry import subject_of
from surefoot.records.finding import Finding, Findings

_BY_SETTINGS = {
    *("batch-norm-of-few-samples", "checkpoint-without-optimizer", "float16-without-scaler", "pickled-module"),
    *("rate-too-large-for-adam", "rate-unusual-for-method", "restarted-workers", "scheduler-at-wrong-rate"),
    *("shuffled-evaluation", "sorted-training-data", "swapped-betas", "zero-learning-rate", "clipping-without-effect"),
}
"""What the settings of a trainer decide. Any other bug inside it is one of the trainer itself."""


def placed(observers: Observers, found: Findings) -> Findings:
    """The findings, each at a line that the user can change or with the library that runs the loop."""
    driver, losses = observers[Driver], {each.where for each in observers[Losses].losses}
    return replace(found, findings=tuple(_placed(each, driver, losses) for each in found.findings))


def _placed(finding: Finding, driver: Driver, losses: set[str]) -> Finding:
    if not driver.line or finding.where != driver.line:
        return finding
    own = losses - {driver.line}
    if subject_of(finding.check) == "losses" and len(own) == 1:
        return replace(finding, where=own.pop())
    if finding.check in _BY_SETTINGS:
        remedy = f"{finding.remedy}; {driver.library} does this: use its settings"
    else:
        remedy = f"{finding.remedy}; {driver.library} does this by itself: override its method"
    return replace(finding, where=f"{finding.where} ({driver.library})", remedy=remedy)
