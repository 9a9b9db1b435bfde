"""optimizer-of-other-parameters

## What it does
Reports an optimizer that holds parameters which no model that runs has, and which no loss reaches.

## Why it hurts
It was built before a layer was replaced, or from a model that was then copied, wrapped or sharded. It
updates tensors that nobody uses, while those in use stay as they are.

## Buggy
```python
optimizer = torch.optim.Adam(model.parameters())
model = copy.deepcopy(model)
```

## Fixed
```python
model = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters())
```

## What looks like it and is fine
Experts and branches that did not run: they are part of the model; a second optimizer whose turn has not
come.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    outside = any(each.trainable and each.reached and not each.optimized for each in evidence.parameters)
    for optimizer in evidence.optimizers:
        strangers = len(optimizer.foreign)
        if not strangers or optimizer.updates < 1:
            continue
        if outside or strangers == optimizer.parameters - optimizer.frozen:
            yield Finding(
                check="optimizer-of-other-parameters",
                severity="error",
                seen=f"{strangers} of {optimizer.parameters} parameters of {optimizer.kind} belong to no model that "
                f"ran, such as one of {optimizer.foreign[0]}",
                where=optimizer.kind,
                why="it updates tensors that nobody uses, while those in use stay as they are",
                remedy="build the optimizer last: after the model is changed, copied, wrapped or sharded",
            )
