"""eval-mode-in-training

## What it does
Reports a model that is trained while it is in evaluation mode, if it has layers that care.

## Why it hurts
In evaluation mode Dropout drops nothing and BatchNorm uses frozen statistics. The model trains without
its regularisation and with the wrong normalisation. The loss curve looks fine; the result is worse. It
happens when `model.eval()` for a validation pass is not followed by `model.train()`.

## Buggy
```python
for epoch in range(epochs):
    train_one_epoch(model)
    model.eval()
    validate(model)
```

## Fixed
```python
for epoch in range(epochs):
    model.train()
    train_one_epoch(model)
    model.eval()
    validate(model)
```

## What looks like it and is fine
Single BatchNorm layers kept in evaluation mode on purpose while the model itself is in training mode; a
frozen teacher; a model without any Dropout or BatchNorm.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    by_model: dict[str, list[bool]] = {}
    layers: dict[str, tuple[str, ...]] = {}
    for forward in evidence.forwards:
        used = forward.backpropagated or not forward.builds_graph
        if forward.trained and used and forward.mode_dependent:
            by_model.setdefault(forward.model, []).append(forward.training)
            layers[forward.model] = forward.mode_dependent
    for model, training in by_model.items():
        wrong = training.count(False)
        if wrong:
            names = layers[model]
            yield Finding(
                check="eval-mode-in-training",
                severity="error",
                seen=(
                    f"{wrong} of {len(training)} forwards that led to an update ran in evaluation mode; "
                    f"layers that behave differently there: {', '.join(names[:3])}"
                    + (", ..." if len(names) > 3 else "")
                ),
                where=model,
                why="Dropout is off and BatchNorm uses frozen statistics while the weights are being trained",
                remedy="call model.train() before training goes on, after every evaluation",
            )
