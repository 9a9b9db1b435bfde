"""A finding: what a check saw, where, why it hurts and the remedy."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One cause, named at its outermost place."""

    check: str
    severity: Severity
    seen: str
    where: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Findings:
    """All that one look found, and which checks looked."""

    recipe: str
    checks: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    allowed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """What could not be tried on copies of models and data sets, and why: no finding, but less was looked at."""
    failure: str = ""
    """Why nothing was looked at to the end, where something of surefoot's own went wrong."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that should stop a run."""
        return tuple(finding for finding in self.findings if finding.severity == "error")
