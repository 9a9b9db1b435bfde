"""far-off-initial-loss

## What it does
Reports a first cross-entropy that is more than twice that of a uniform guess. Also reports a layer whose initial
weights make its input more than twenty times as large or mostly have one sign, and a model most of whose layers make
their input several times as large or return almost zero.

## Why it hurts
A fresh model that is confidently wrong has badly scaled weights: the first hundreds of steps undo the initialisation,
and saturated layers may never recover.

## Buggy
```python
nn.init.normal_(self.embed.weight, std=1.0)
self.head.weight = self.embed.weight
```

## Fixed
```python
nn.init.normal_(self.embed.weight, std=0.02)
self.head.weight = self.embed.weight
```

## What looks like it and is fine
Trained weights on a new task; weighted losses; scores of all samples of a batch with each other, which a temperature
makes sharp.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from surefoot.checks.facts.losses import Loss, LossFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

_FAR = {"classes": 2.0, "binary": 5.0, "distance": 2.0}


def check(loss_facts: LossFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    large = [name for layout in model_facts.layouts for name in layout.far_off]
    if large:
        yield _finding(f"before the first update {large[0]} makes its input many times as large", large[0])
        return
    tiny = [layout for layout in model_facts.layouts if layout.faint * 2 > layout.matrices and layout.faint >= 2]
    if tiny:
        yield replace(
            _finding(f"before the first update {tiny[0].faint} layers return almost zero", tiny[0].model),
            why="almost nothing of the input, and of the gradient, gets through such layers",
            remedy="initialise with larger weights: a standard deviation of 1/sqrt(fan-in)",
        )
        return
    loud = [layout for layout in model_facts.layouts if layout.loud * 2 > layout.matrices and layout.loud >= 2]
    if loud:
        seen = f"before the first update {loud[0].loud} of {loud[0].matrices} layers make their input far larger"
        yield _finding(seen, loud[0].model)
        return
    if any(loss.cosines or _is_matching(loss) for loss in loss_facts.losses if loss.update == 0):
        return
    far = [aim for aim in loss_facts.aims if aim.update == 0 and aim.excess > _FAR.get(aim.kind, math.inf)]
    if far:
        seen = f"the first predictions are at least {far[0].excess:.3g} times as far off as a guess"
        yield _finding(seen, far[0].model)
        return
    first = next((loss for loss in loss_facts.losses if loss.value is not None), None)
    if first is None or first.function != "cross_entropy" or not first.valid or first.update > 0:
        return
    value = (first.value or 0.0) / (first.valid if first.reduction == "sum" else 1)
    uniform = math.log(first.classes) if first.classes > 2 else math.inf
    if value > 2 * uniform + 1:
        seen = f"the first loss is {value:.3g}; a uniform guess among {first.classes} classes has {uniform:.3g}"
        yield _finding(seen, first.where or "the recipe's model")


def _is_matching(loss: Loss) -> bool:
    """Must each sample be found among all of its batch? A temperature makes such scores sharp on purpose."""
    return len(loss.shape) == 2 and loss.classes == loss.valid == loss.distinct == loss.shape[0]


def _finding(seen: str, where: str) -> Finding:
    return Finding(
        check="far-off-initial-loss",
        severity="warning",
        seen=seen,
        where=where,
        why="a fresh model that is confidently wrong spends its first steps undoing its initialisation",
        remedy="initialise with smaller weights: a standard deviation near 0.02, or 1/sqrt(fan-in)",
    )
