"""threshold-on-logits

## What it does
Reports scores of an evaluated model that are taken for what they are not: logits that are compared with one half or
rounded, in torch or outside of it, also by a function that a framework gives all predictions; probabilities that are
compared with 0, or go through a sigmoid once more; independent labels that share one softmax; and a largest score that
is sought among something else than the classes.

## Why it hurts
A logit of one half is a probability of 62%. The metric leaves out samples that the model is right about. The largest
score over the samples of a batch is no guess at all.

## Buggy
```python
guess = model(x) > 0.5
```

## Fixed
```python
guess = torch.sigmoid(model(x)) > 0.5
```

## What looks like it and is fine
A cut-off that was chosen on held-out data and happens to be one half.
"""

from collections.abc import Iterator

from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts, evaluation_facts: EvaluationFacts) -> Iterator[Finding]:
    binary = any(loss.function == "binary_cross_entropy_with_logits" for loss in loss_facts.losses)
    binary |= any(aim.kind == "binary" for aim in loss_facts.aims)
    for threshold in [each for each in evaluation_facts.thresholds if each.seen or binary][:1]:
        between = f"numbers between {threshold.lowest:.3g} and {threshold.highest:.3g}"
        yield Finding(
            check="threshold-on-logits",
            severity="info",
            seen=threshold.seen or f"{between} are compared with 0.5",
            where=threshold.where or "the loop",
            why="a logit of one half is a probability of 62%, and only classes can be told by the largest score",
            remedy="compare torch.sigmoid(logits) with 0.5, or logits with 0; seek the largest over the classes",
        )
