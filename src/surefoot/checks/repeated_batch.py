"""repeated-batch

## What it does
Reports a loop that gives its model the same inputs in four updates in a row although a loader has more.

## Why it hurts
The loss falls beautifully: one batch is learned by heart. It happens when `next(iter(loader))` is left
inside the loop after a test of overfitting.

## Buggy
```python
for _ in range(steps):
    x, y = next(iter(loader))
```

## Fixed
```python
for x, y in loader:
    ...
```

## What looks like it and is fine
Training on the whole data set at once, as graph networks and LBFGS do.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    loaders = [each for each in evidence.loaders if each.role != "evaluation" and (each.batches or 2) > 1]
    if not loaders:
        return
    by_update: dict[tuple[str, int], list[int]] = {}
    for forward in evidence.forwards:
        if forward.trained and forward.batch:
            by_update.setdefault((forward.model, forward.update), []).append(forward.batch)
    for model in {name for name, _ in by_update}:
        batches = [tuple(each) for (name, _), each in sorted(by_update.items()) if name == model]
        if len(batches) >= 4 and len(set(batches)) == 1:
            yield Finding(
                check="repeated-batch",
                severity="warning",
                seen=f"{model} saw the same inputs in {len(batches)} updates in a row; the loader has "
                f"{loaders[0].batches or 'more'} batches",
                where=model,
                why="one batch is learned by heart",
                remedy="iterate over the loader; next(iter(loader)) begins anew every time",
            )
            return
