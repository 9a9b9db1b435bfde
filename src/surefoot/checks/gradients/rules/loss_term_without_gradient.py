"""loss-term-without-gradient

## What it does
Reports a loss that is computed from trainable parameters which no back-propagated loss reaches, and a number that
was made from parameters and is added to what is back-propagated without a graph of its own or rounded.

## Why it hurts
A term added as a number (`.item()`, `.detach()`, `float()`, a comparison, `argmax`) shows in the printed loss and
trains nothing.

## Buggy
```python
loss = F.cross_entropy(logits, y) + 0.1 * F.mse_loss(model.decode(z), x).item()
```

## Fixed
```python
loss = F.cross_entropy(logits, y) + 0.1 * F.mse_loss(model.decode(z), x)
```

## What looks like it and is fine
A loss that is only logged, of a model whose parameters another loss trains; a constant; a number that depends on no
parameter, such as the entropy of a teacher; a loss whose value is replaced and whose gradient is kept.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding, Severity

EXPLAINS = ("detached-layers",)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""

_ALIKE = 1e-5


def check(loop_facts: LoopFacts, loss_facts: LossFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    lost = [each for each in model_facts.parameters if each.only_in and each.optimized and each.trainable]
    if lost and len(loop_facts.updates) >= 2:
        seen = f"a loss is computed from {len(lost)} parameters, such as {lost[0].name}, that no backward reaches"
        yield _finding("error", seen, lost[0].only_in)
        return
    for where in loss_facts.flat_lines:
        seen = "what is back-propagated is rounded, or only its sign is taken, and no gradient passes that"
        yield _finding("warning", seen, where or "the recipe's loss")
        return
    for where, least, largest in _numbers(loss_facts):
        seen = (
            f"a number between {least:.3g} and {largest:.3g} is added to what is back-propagated, and not to its graph"
        )
        yield _finding("warning", seen, where or "the recipe's loss")
        return


def _numbers(loss_facts: LossFacts) -> Iterator[tuple[str, float, float]]:
    """Lines that add another number in every backward, with the least and the largest of them."""
    lines: dict[str, list[float]] = {}
    for term in loss_facts.terms:
        lines.setdefault(term.where, []).append(term.value)
    for where, values in lines.items():
        if len(values) >= 4 and max(values) - min(values) > _ALIKE * max(map(abs, values)):
            yield where, min(values), max(values)


def _finding(severity: Severity, seen: str, where: str) -> Finding:
    return Finding(
        check="loss-term-without-gradient",
        severity=severity,
        seen=seen,
        where=where,
        why="the term shows in the printed loss and trains nothing",
        remedy="add the term as a tensor, without .item(), .detach() or float()",
    )
