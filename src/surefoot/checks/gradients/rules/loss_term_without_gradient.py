"""loss-term-without-gradient

## What it does
Reports a loss that is computed from trainable parameters which no back-propagated loss reaches. Also reports a number
made from parameters that is added to the back-propagated loss without a graph of its own, or rounded.

## Why it hurts
A term added as a number (`.item()`, `.detach()`, `float()`, a comparison, `argmax`) shows in the printed loss but
trains nothing. So does a penalty on gradients that `torch.autograd.grad` computed without `create_graph=True`, and a
term that never becomes part of the loss.

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
from surefoot.units import counted

EXPLAINS = ("detached-layers",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_ALIKE = 1e-5


def check(loop_facts: LoopFacts, loss_facts: LossFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    lost = [each for each in model_facts.parameters if each.only_in and each.optimized and each.trainable]
    if lost and len(loop_facts.updates) >= 2 and loop_facts.backwards:
        seen = f"a loss is computed from {counted(len(lost), 'parameter')} that no backward reaches, "
        seen += f"for example {lost[0].name}"
        added = "add it to the loss that backward is called on, as a tensor: without .item(), .detach() or float()"
        yield _finding("error", seen, lost[0].only_in, added)
        return
    for where in loss_facts.flat_lines:
        seen = "the back-propagated loss is rounded, or only its sign is taken, which lets no gradient through"
        yield _finding(
            "warning", seen, where or "the recipe's loss", "leave the loss as it is, and round what is printed"
        )
        return
    for where, least, largest, cut in _numbers(loss_facts):
        seen = (
            f"a number between {least:.3g} and {largest:.3g} is added to the back-propagated loss, but not to its graph"
        )
        remedy = "add the term as a tensor, without .item(), .detach() or float()"
        if cut == "grad":
            seen += ": it is made of the result of torch.autograd.grad, which has no graph"
            remedy = (
                "pass create_graph=True to torch.autograd.grad, so that a term made of gradients has a gradient itself"
            )
        yield _finding("warning", seen, where or "the recipe's loss", remedy)
        return


def _numbers(loss_facts: LossFacts) -> Iterator[tuple[str, float, float, str]]:
    """Lines that add a different number in every backward: the smallest, the largest, and what cut the graph."""
    lines: dict[tuple[str, str], list[float]] = {}
    for term in loss_facts.terms:
        lines.setdefault((term.where, term.cut), []).append(term.value)
    for (where, cut), values in lines.items():
        if len(values) >= 4 and max(values) - min(values) > _ALIKE * max(map(abs, values)):
            yield where, min(values), max(values), cut


def _finding(severity: Severity, seen: str, where: str, remedy: str) -> Finding:
    return Finding(
        check="loss-term-without-gradient",
        severity=severity,
        seen=seen,
        where=where,
        why="the term shows in the printed loss but trains nothing",
        remedy=remedy,
    )
