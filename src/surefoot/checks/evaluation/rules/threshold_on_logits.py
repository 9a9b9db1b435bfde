"""threshold-on-logits

## What it does
Reports scores of an evaluated model that are misread. Logits are compared with 0.5 or rounded, in torch, outside of
it or in a metric function of a framework; probabilities are compared with 0 or go through a second sigmoid;
independent labels share one softmax; or an argmax runs over something other than the classes.

## Why it hurts
A logit of 0.5 is a probability of 62%, so the metric misses samples that the model gets right. An argmax over the
samples of a batch predicts nothing.

## Buggy
```python
guess = model(x) > 0.5
```

## Fixed
```python
guess = torch.sigmoid(model(x)) > 0.5
```

## What looks like it and is fine
A cut-off that was chosen on held-out data and happens to be 0.5.
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
            why="a logit of 0.5 is a probability of 62%, and only the largest score over the classes names a class",
            remedy="compare torch.sigmoid(logits) with 0.5, or logits with 0; take argmax over the class dimension",
        )
