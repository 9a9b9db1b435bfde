"""training-mode-in-evaluation

## What it does
Reports evaluation, without gradients and several batches in a row, with Dropout or BatchNorm in training
mode.

## Why it hurts
Dropout makes the numbers worse and random; BatchNorm uses the statistics of the evaluation batch and lets
them into its running ones.

## Buggy
```python
with torch.no_grad():
    for x, y in validation:
        model(x)
```

## Fixed
```python
model.eval()
with torch.no_grad():
    for x, y in validation:
        model(x)
model.train()
```

## What looks like it and is fine
Monte Carlo dropout; a single forward between two updates, as for a pseudo-label; collecting statistics with
`update_bn`.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    runs: dict[tuple[str, int], list[tuple[str, ...]]] = {}
    for each in evidence.evaluations:
        if each.trained and each.active and not each.repeated:
            runs.setdefault((each.model, each.update), []).append(each.active)
    if any(each.repeated for each in evidence.evaluations):
        return
    for (model, update), active in runs.items():
        if len(active) >= 2 and update:
            yield Finding(
                check="training-mode-in-evaluation",
                severity="warning",
                seen=f"after update {update}, {len(active)} forwards without gradients ran in training mode: "
                f"{', '.join(active[0][:3])}",
                where=model,
                why="Dropout makes the numbers worse, and BatchNorm learns from evaluation data",
                remedy="call model.eval() before evaluation and model.train() after it",
            )
            return
