"""training-mode-in-evaluation

## What it does
Reports evaluation without gradients while Dropout or BatchNorm is in training mode: several batches in a row, or one
now and then. It looks at models that are trained and, if evaluated only now and then, at their copies, for example an
average of the weights.

## Why it hurts
Dropout makes the numbers worse and random. BatchNorm uses the statistics of the evaluation batch and mixes them into
its running ones.

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
Monte Carlo dropout, also as one large batch or with only Dropout in training mode; forward calls on the training
batch, as for a pseudo-label; a policy that acts; collecting statistics with `update_bn`, or with forward calls whose
results are not used; a teacher that sees every batch.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import Evaluation, EvaluationFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

_FEWEST = 8
"""A forward of at least this many samples is an evaluation; fewer may be a policy that acts."""
_RARE = 1 / 3
"""Single forwards after more than this share of the updates are part of the step, like pseudo-labels."""
_VIEWS = 2
"""Up to this many forwards, after as many updates, are views of one batch, averaged into a pseudo-label."""


def check(loop_facts: LoopFacts, evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    runs: dict[tuple[str, int], list[Evaluation]] = {}
    for each in evaluation_facts.evaluations:
        measures = each.active and each.used and not each.repeated and not each.in_step
        if measures and (each.trained or each.copied) and each.update:
            runs.setdefault((each.model, each.update), []).append(each)
    if any(each.repeated for each in evaluation_facts.evaluations):
        return
    for (model, update), run in runs.items():
        passes = sum(other == model for other, _ in runs)
        rare = len(loop_facts.updates) >= 4 and passes <= _RARE * len(loop_facts.updates)
        in_step = len(run) <= _VIEWS and passes > max(2, _RARE * len(loop_facts.updates))
        if (len(run) >= 2 and run[0].trained and not in_step) or (rare and run[0].samples >= _FEWEST):
            yield Finding(
                check="training-mode-in-evaluation",
                severity="warning",
                seen=f"after update {update}, {counted(len(run), 'forward call')} without gradients ran in training "
                f"mode: {', '.join(run[0].active[:3])}",
                where=model,
                why="Dropout makes the numbers worse, and BatchNorm learns from evaluation data",
                remedy="call model.eval() before evaluation and model.train() after it"
                if run[0].trained
                else f"call eval() on {model} once, after it is made: no optimizer trains it",
            )
            return
