"""loss-term-without-gradient

## What it does
Reports a loss that is computed from trainable parameters which no back-propagated loss reaches.

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

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    lost = [each for each in evidence.parameters if each.only_in and each.optimized and each.trainable]
    if lost and len(evidence.updates) >= 2:
        yield Finding(
            check="loss-term-without-gradient",
            severity="error",
            seen=f"a loss is computed from {len(lost)} parameters, such as {lost[0].name}, that no backward reaches",
            where=lost[0].only_in,
            why="the term shows in the printed loss and trains nothing",
            remedy="add the term as a tensor, without .item(), .detach() or float()",
        )
