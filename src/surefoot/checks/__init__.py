"""Checks: one silent bug per file, each a pure function from evidence to findings."""

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from surefoot.checks import (
    detached_loss,
    eval_mode_in_training,
    layers_in_plain_list,
    missing_zero_grad,
    parameter_outside_optimizer,
    softmax_before_cross_entropy,
)
from surefoot.checks.evidence import Evidence
from surefoot.errors import RecipeError
from surefoot.records.finding import Finding, Findings

_FILES: tuple[ModuleType, ...] = (
    detached_loss,
    eval_mode_in_training,
    layers_in_plain_list,
    missing_zero_grad,
    parameter_outside_optimizer,
    softmax_before_cross_entropy,
)

CHECKS: dict[str, Callable[[Evidence], Iterator[Finding]]] = {
    file.__name__.rpartition(".")[2].replace("_", "-"): file.check for file in _FILES
}
"""Every check by the name that silences it."""


def run_checks(evidence: Evidence, *, recipe: str, allow: Iterable[str] = ()) -> Findings:
    """All findings, errors first; those of allowed checks are left out."""
    allowed = tuple(allow)
    for name in allowed:
        if name not in CHECKS:
            raise RecipeError(f"no check is called {name!r}; known: {', '.join(CHECKS)}")
    found = [each for name, check in CHECKS.items() if name not in allowed for each in check(evidence)]
    order = ("error", "warning", "info")
    found.sort(key=lambda finding: order.index(finding.severity))
    return Findings(recipe, tuple(CHECKS), tuple(found), allowed)
