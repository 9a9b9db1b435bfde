"""eval-mode-in-training

## What it does
Reports training in evaluation mode, if the model has layers that behave differently there.

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
Single BatchNorm layers kept in evaluation mode on purpose while the model itself is in training mode; an encoder
whose statistics stay fixed while a head on top of it is trained; layers of a frozen part; gradients that are
inspected but not used; a frozen teacher; a model without any Dropout or BatchNorm.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import Forward, LoopFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    by_model: dict[str, list[Forward]] = {}
    for forward in loop_facts.forwards:
        used = forward.backpropagated or not forward.builds_graph
        if forward.trained and used and forward.mode_dependent:
            by_model.setdefault(forward.model, []).append(forward)
    for model, forwards in by_model.items():
        wrong = [each for each in forwards if each.resting]
        if wrong and not _keeps_statistics(wrong, loop_facts):
            names = wrong[0].resting
            yield Finding(
                check="eval-mode-in-training",
                severity="error" if len(wrong) < len(forwards) else "warning",
                seen=(
                    f"{len(wrong)} of {len(forwards)} forward calls that led to an update ran in evaluation mode; "
                    f"layers that behave differently there: {', '.join(names[:3])}"
                    + (", ..." if len(names) > 3 else "")
                ),
                where=model,
                why="Dropout is off and BatchNorm uses frozen statistics while the weights are being trained",
                remedy=_remedy(model, len(wrong) == len(forwards), loop_facts),
            )


def _remedy(model: str, always: bool, loop_facts: LoopFacts) -> str:
    """A model that always runs in evaluation mode beside one that learns in training mode may be a teacher."""
    beside = any(each.model != model and each.trained and each.training for each in loop_facts.forwards)
    if always and beside:
        return (
            f"if {model} is a teacher or target, keep it so, but out of the optimizer and under torch.no_grad(); "
            "if it should learn, call its train() before training"
        )
    return "call model.train() " + ("before training" if always else "after every evaluation, before training resumes")


def _keeps_statistics(wrong: list[Forward], loop_facts: LoopFacts) -> bool:
    """Does a model without Dropout always run in evaluation mode while another trains, as an encoder below a head?"""
    own = [each for each in loop_facts.forwards if each.model == wrong[0].model and each.trained]
    others = [each for each in loop_facts.forwards if each.model != wrong[0].model and each.trained]
    norms = all("BatchNorm" in layer for each in wrong for layer in each.resting)
    return norms and not any(each.training for each in own) and any(each.training for each in others)
