"""training-mode-in-evaluation

## What it does
Reports evaluation, without gradients, with Dropout or BatchNorm in training mode: several batches in a row,
or one now and then; of a model that is trained, and now and then of its copy, as an average of its weights is.

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
Monte Carlo dropout, also as one large batch or with Dropout alone in training mode; forwards on the batch that is
trained on, as for a pseudo-label; a policy that acts; collecting statistics with `update_bn`, or by forwards whose
results nobody looks at; a teacher that looks at every batch.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import Evaluation, EvaluationFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

_FEWEST = 8
"""So many samples in one forward are an evaluation; fewer may be a policy that acts."""
_RARE = 1 / 3
"""A lone forward after more than this share of the updates belongs to the step, as a pseudo-label does."""
_VIEWS = 2
"""So many forwards, after as many updates, are views of one batch whose mean is the pseudo-label."""


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
                seen=f"after update {update}, {len(run)} forwards without gradients ran in training mode: "
                f"{', '.join(run[0].active[:3])}",
                where=model,
                why="Dropout makes the numbers worse, and BatchNorm learns from evaluation data",
                remedy="call model.eval() before evaluation and model.train() after it",
            )
            return
