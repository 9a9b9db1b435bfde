"""What an attempt to learn one batch by heart says of a recipe: the cause where it shows, else the symptom."""

from collections.abc import Iterable, Sequence

from surefoot.errors import RecipeError
from surefoot.records.finding import Finding, Findings
from surefoot.records.overfit import Attempt, Wiring

CHECKS = ("detached-parameter", "parameter-outside-optimizer", "random-loss", "batch-not-learned")


def known(allow: Iterable[str]) -> tuple[str, ...]:
    """The checks that are allowed to find something, if they exist."""
    allowed = tuple(allow)
    for name in allowed:
        if name not in CHECKS:
            raise RecipeError(f"no check of --overfit is called {name!r}; known: {', '.join(CHECKS)}")
    return allowed


def causes(wiring: Wiring, allowed: Sequence[str]) -> tuple[Finding, ...]:
    """What would keep the batch from being learned at any rate, or what never moves although it is learned."""
    found = [_detached(wiring)] if wiring.detached else []
    found += [_outside(wiring)] if wiring.outside else []
    return tuple(finding for finding in found if finding.check not in allowed)


def judge(wiring: Wiring, attempts: Sequence[Attempt], *, recipe: str, allowed: Sequence[str] = ()) -> Findings:
    """The causes; where the batch was not learned and there is none, that it was not."""
    found = causes(wiring, allowed)
    if not any(attempt.outcome == "learned" for attempt in attempts) and (wiring.random or not found):
        missed = _random(wiring) if wiring.random else _not_learned(attempts)
        found += () if missed.check in allowed else (missed,)
    return Findings(recipe, CHECKS, found, tuple(allowed))


def _detached(wiring: Wiring) -> Finding:
    return Finding(
        check="detached-parameter",
        severity="error",
        seen=f"no gradient reaches {_some(wiring.detached, wiring)}, though the loss changes with them",
        where=_place(wiring.detached),
        why="the graph is cut between them and the loss, so they keep their initial values",
        remedy="look between them and the loss for .detach(), .data, .item(), NumPy or no_grad; "
        "freeze with requires_grad_(False) what is not to be trained",
    )


def _outside(wiring: Wiring) -> Finding:
    return Finding(
        check="parameter-outside-optimizer",
        severity="error",
        seen=f"no optimizer holds {_some(wiring.outside, wiring)}",
        where=_place(wiring.outside),
        why="nothing updates them; they keep their initial values",
        remedy="build the optimizer from the parameters that the recipe is given, all of them; "
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
        why="what is drawn anew at every call cannot be learned: labels out of step with their samples, or noise",
        remedy="keep samples and labels together; allow it where noise is meant, as in diffusion or masking",
    )


def _not_learned(attempts: Sequence[Attempt]) -> Finding:
    return Finding(
        check="batch-not-learned",
        severity="error",
        seen="; ".join(_told(attempt) for attempt in attempts),
        where="the recipe's model, loss, data or optimizer",
        why="a model that cannot learn one batch by heart cannot learn more; all its parameters receive gradients, so "
        "look at what goes in and what is compared",
        remedy="compare targets with inputs, look for outputs that do not depend on the input, for a softmax or a "
        "sigmoid too many, for a wrong sign; where the loss cannot reach zero, give --target-loss",
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
