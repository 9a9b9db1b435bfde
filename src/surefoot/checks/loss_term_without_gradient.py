"""loss-term-without-gradient

## What it does
Reports a loss that is computed from trainable parameters which no back-propagated loss reaches, and one that is
part of the number that was back-propagated and not of its graph.

## Why it hurts
A term added as a number (`.item()`, `.detach()`, `float()`) shows in the printed loss and trains nothing.

## Buggy
```python
loss = F.cross_entropy(logits, y) + 0.1 * F.mse_loss(model.decode(z), x).item()
```

## Fixed
```python
loss = F.cross_entropy(logits, y) + 0.1 * F.mse_loss(model.decode(z), x)
```

## What looks like it and is fine
A loss that is only logged, of a model whose parameters another loss trains.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence, Loss
from surefoot.records.finding import Finding

_ALIKE = 1e-2


def check(evidence: Evidence) -> Iterator[Finding]:
    lost = [each for each in evidence.parameters if each.only_in and each.optimized and each.trainable]
    if lost and len(evidence.updates) >= 2:
        seen = f"a loss is computed from {len(lost)} parameters, such as {lost[0].name}, that no backward reaches"
        yield _finding("error", seen, lost[0].only_in)
        return
    for where, factor in _numbers(evidence):
        seen = f"{factor:.3g} times this loss is in the number that is back-propagated, and not in its graph"
        yield _finding("warning", seen, where)
        return


def _numbers(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Losses without a gradient of which the rest of the back-propagated number is always the same multiple."""
    sites: dict[int, list[Loss]] = {}
    for loss in evidence.losses:
        if loss.value and not loss.weights and 0 <= loss.backward < len(evidence.backwards):
            sites.setdefault(loss.site, []).append(loss)
    for losses in sites.values():
        values = [loss.value or 0.0 for loss in losses]
        if len(losses) < 4 or max(values) - min(values) < _ALIKE * max(map(abs, values)):
            continue
        rests = [_rest(evidence, loss.backward) for loss in losses]
        factors = [rest / value for rest, value in zip(rests, values, strict=True) if rest is not None]
        alike = len(factors) == len(values) and max(factors) - min(factors) < _ALIKE * max(map(abs, factors))
        if alike and abs(factors[0]) > _ALIKE:
            yield losses[0].where, factors[0]


def _rest(evidence: Evidence, number: int) -> float | None:
    """What is left of a back-propagated number when its losses are taken off, each as it counts there."""
    whole = evidence.backwards[number].value
    parts = [loss for loss in evidence.losses if loss.backward == number and loss.weights]
    if whole is None or not parts or any(loss.value is None for loss in parts):
        return None
    return whole - sum(sum(loss.weights) * (loss.value or 0.0) for loss in parts)


def _finding(severity: str, seen: str, where: str) -> Finding:
    return Finding(
        check="loss-term-without-gradient",
        severity=severity,
        seen=seen,
        where=where,
        why="the term shows in the printed loss and trains nothing",
        remedy="add the term as a tensor, without .item(), .detach() or float()",
    )
