"""A finding: what a check saw, where, why it hurts, and how to fix it."""

from dataclasses import dataclass
from typing import Literal

from surefoot.records.shown import Shown

Severity = Literal["error", "warning", "info"]
UNKNOWN_LOSS = "the meaning of the loss"
"""How a part that was not examined begins, if no loss function was recognised in a loss."""
_RANK = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Mark:
    """A part of a line of the user's source: the characters from `first` to `last`, counted from 0."""

    file: str
    line: int
    first: int
    last: int
    code: str
    """The line as it is written."""
    label: str = ""
    """What this part does in the bug."""


@dataclass(frozen=True)
class Edit:
    """A change of one line that certainly is the remedy."""

    file: str
    line: int
    before: str
    """The line as it is; empty if `after` is a new line that belongs before it."""
    after: str


@dataclass(frozen=True)
class Finding:
    """One cause, named at its outermost place."""

    check: str
    severity: Severity
    seen: str
    where: str
    why: str
    remedy: str
    marks: tuple[Mark, ...] = ()
    """The lines at fault: the cause first, then the line that made the bug together with it."""
    edit: Edit | None = None


@dataclass(frozen=True)
class Findings(Shown):
    """The findings of one check of a recipe or script, and the checks that ran."""

    recipe: str
    checks: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    allowed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Probes on copies of models and data sets that could not run, and why. Not findings, but less was checked."""
    examined: tuple[str, ...] = ()
    """The parts of a watched loop that the checks looked at."""
    not_examined: tuple[str, ...] = ()
    """The parts that they did not look at, or did not understand."""
    failure: str = ""
    """The error inside surefoot that stopped the checks, if there was one."""

    @property
    def by_severity(self) -> tuple[Finding, ...]:
        """Errors first, then warnings, then the rest."""
        return tuple(sorted(self.findings, key=lambda finding: _RANK.get(finding.severity, len(_RANK))))

    @property
    def unknown_losses(self) -> tuple[str, ...]:
        """Losses in which nothing was recognised: finding nothing in them says little."""
        return tuple(part for part in self.not_examined if part.startswith(UNKNOWN_LOSS))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that should stop a run."""
        return tuple(finding for finding in self.findings if finding.severity == "error")
