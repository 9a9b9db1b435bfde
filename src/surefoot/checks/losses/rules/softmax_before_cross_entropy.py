"""softmax-before-cross-entropy

## What it does
Reports probabilities passed to a loss that expects logits: a softmax whose output goes straight into the log-softmax
inside `cross_entropy`.

## Why it hurts
The softmax is applied twice. The second one sees numbers between 0 and 1, so the predicted probabilities
can never come near 1, the gradients shrink, and the loss stops falling early.

## Buggy
```python
def forward(self, x):
    return F.softmax(self.classify(x), dim=-1)

loss = F.cross_entropy(model(x), target)
```

## Fixed
```python
def forward(self, x):
    return self.classify(x)

loss = F.cross_entropy(model(x), target)
```

## What looks like it and is fine
The softmax inside attention; a log-softmax before `cross_entropy`, which changes nothing; a softmax used
for a metric beside the loss.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

EXPLAINS = ("far-off-initial-loss",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_FEWEST = 8
"""This many rows do not sum to 1 by chance."""


def check(loop_facts: LoopFacts, loss_facts: LossFacts) -> Iterator[Finding]:
    entropies = [loss for loss in loss_facts.losses if loss.function == "cross_entropy"]
    others = {loss.site for loss in entropies if not loss.probabilities}
    given = [loss for loss in entropies if loss.probabilities and loss.site not in others]
    given = given if sum(loss.targets for loss in given) >= _FEWEST else []
    turned = any(loss.above == "Softmax" and not loss.probabilities for loss in loss_facts.losses)
    doubled = [backward for backward in loop_facts.backwards if backward.double_softmax]
    by_hand = [aim for aim in loss_facts.aims if aim.kind == "classes" and aim.values == "probabilities"]
    if not given and not by_hand and (not doubled or turned):
        return
    if doubled:
        maker, where = doubled[0].double_softmax[0], doubled[0].where or doubled[0].double_softmax[0]
        seen = (
            f"in {len(doubled)} of {len(loop_facts.backwards)} backward calls, the output of a softmax in {maker} goes "
            "straight into a log-softmax"
        )
    elif by_hand:
        where = by_hand[0].model
        seen = f"{len(by_hand)} gradients come from a cross-entropy that treats probabilities as logits"
    else:
        where = given[0].where or "the recipe's loss"
        seen = f"cross_entropy received probabilities {counted(len(given), 'time')}: "
        seen += "between 0 and 1, with a sum of 1 over classes"
    yield Finding(
        check="softmax-before-cross-entropy",
        severity="error",
        seen=seen,
        where=where,
        why="softmax is applied twice: probabilities cannot come near 1 and gradients shrink",
        remedy="pass the raw logits to cross_entropy; apply softmax only where you need probabilities",
    )
