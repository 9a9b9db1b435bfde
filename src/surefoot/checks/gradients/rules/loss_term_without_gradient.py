"""loss-term-without-gradient

## What it does
Reports a loss that is computed from trainable parameters which no back-propagated loss reaches. Also reports a number
made from parameters that is added to the back-propagated loss without a graph of its own, or rounded.

## Why it hurts
A term added as a number (`.item()`, `.detach()`, `float()`, a comparison, `argmax`) shows in the printed loss but
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
A loss that is only logged, if another loss trains the model's parameters; a constant; a number that depends on no
parameter, for example the entropy of a teacher; a loss whose value is replaced and whose gradient is kept. A loop
without any `backward()` is reported by `update-without-gradients` alone.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding, Severity
from surefoot.records.units import counted

EXPLAINS = ("detached-layers",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_ALIKE = 1e-5


def check(loop_facts: LoopFacts, loss_facts: LossFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    lost = [each for each in model_facts.parameters if each.only_in and each.optimized and each.trainable]
    if lost and len(loop_facts.updates) >= 2 and loop_facts.backwards:
        seen = f"a loss is computed from {counted(len(lost), 'parameter')} that no backward reaches, "
        seen += f"for example {lost[0].name}"
        yield _finding("error", seen, lost[0].only_in)
        return
    for where in loss_facts.flat_lines:
        seen = "the back-propagated loss is rounded, or only its sign is taken, which lets no gradient through"
        yield _finding("warning", seen, where or "the recipe's loss")
        return
    for where, least, largest in _numbers(loss_facts):
        seen = (
            f"a number between {least:.3g} and {largest:.3g} is added to the back-propagated loss, but not to its graph"
        )
        yield _finding("warning", seen, where or "the recipe's loss")
        return


def _numbers(loss_facts: LossFacts) -> Iterator[tuple[str, float, float]]:
    """Lines that add a different number in every backward, with the smallest and the largest."""
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
        why="the term shows in the printed loss but trains nothing",
        remedy="add the term as a tensor, without .item(), .detach() or float()",
    )
