"""Judges an attempt to overfit one batch: reports the cause if it is visible, else the symptom."""

from collections.abc import Iterable, Sequence

from surefoot.errors import RecipeError, known_names
from surefoot.records.finding import Finding, Findings
from surefoot.records.overfit import Attempt, Wiring

CHECKS = ("detached-parameter", "parameter-outside-optimizer", "random-loss", "batch-not-learned")


def known(allow: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of allowed checks, or raises if one does not exist."""
    allowed = tuple(allow)
    for name in allowed:
        if name not in CHECKS:
            raise RecipeError(f"no check of --overfit is called {name!r}; {known_names(name, CHECKS)}")
    return allowed


def causes(wiring: Wiring, allowed: Sequence[str]) -> tuple[Finding, ...]:
    """What keeps the batch from being learned at any learning rate, or parameters that never change."""
    found = [_detached(wiring)] if wiring.detached else []
    found += [_outside(wiring)] if wiring.outside else []
    return tuple(finding for finding in found if finding.check not in allowed)


def judge(wiring: Wiring, attempts: Sequence[Attempt], *, recipe: str, allowed: Sequence[str] = ()) -> Findings:
    """The causes. If the batch was not learned for no known cause, a finding that says so."""
    found = causes(wiring, allowed)
    if not any(attempt.outcome == "learned" for attempt in attempts) and (wiring.random or not found):
        missed = _random(wiring) if wiring.random else _not_learned(attempts)
        found += () if missed.check in allowed else (missed,)
    return Findings(recipe, CHECKS, found, tuple(allowed))


def _detached(wiring: Wiring) -> Finding:
    return Finding(
        check="detached-parameter",
        severity="error",
        seen=f"no gradient reaches {_some(wiring.detached, wiring)}, although the loss depends on them",
        where=_place(wiring.detached),
        why="the graph is cut between them and the loss, so they keep their initial values",
        remedy="look between them and the loss for .detach(), .data, .item(), NumPy or no_grad; "
        "freeze parameters that should not train with requires_grad_(False)",
    )


def _outside(wiring: Wiring) -> Finding:
    return Finding(
        check="parameter-outside-optimizer",
        severity="error",
        seen=f"no optimizer holds {_some(wiring.outside, wiring)}",
        where=_place(wiring.outside),
        why="nothing updates them; they keep their initial values",
        remedy="build the optimizer from all the parameters it is given; "
        "or freeze the others with requires_grad_(False)",
    )


def _random(wiring: Wiring) -> Finding:
    first, second = wiring.repeated_losses
    return Finding(
        check="random-loss",
        severity="error",
        seen=f"the same batch and the same weights gave a loss of {first:.4g}, then {second:.4g}; "
        "training on it alone did not bring it near zero",
        where="the model's forward or the recipe's loss",
        why="no model can learn random values that change at every call: labels of other samples, or noise",
        remedy="keep samples and labels together; allow it if you want noise, as in diffusion or masking",
    )


def _not_learned(attempts: Sequence[Attempt]) -> Finding:
    return Finding(
        check="batch-not-learned",
        severity="error",
        seen="; ".join(_told(attempt) for attempt in attempts),
        where="the recipe's model, loss, data or optimizer",
        why="a model that cannot overfit one batch cannot learn more; all its parameters receive gradients, so "
        "check the inputs and what the loss compares",
        remedy="compare targets with inputs; look for outputs that do not depend on the input, an extra softmax or "
        "sigmoid, or a wrong sign; if the loss cannot reach zero, give --target-loss",
    )


def _told(attempt: Attempt) -> str:
    if not attempt.losses:
        return f"at lr {attempt.lr:.3g} the first loss was not finite"
    course = f"loss {attempt.losses[0]:.4g} -> {attempt.losses[-1]:.4g} in {len(attempt.losses)} steps"
    return f"{course} at lr {attempt.lr:.3g}" + (", then not finite" if attempt.outcome == "diverged" else "")


def _some(names: Sequence[str], wiring: Wiring) -> str:
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"{len(names)} of {wiring.parameters} trainable parameters ({shown})"


def _place(names: Sequence[str]) -> str:
    return names[0].rpartition(".")[0] or names[0]
