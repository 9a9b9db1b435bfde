"""softmax-over-wrong-dimension

## What it does
Reports a softmax over another dimension than the classes right before the loss or in its targets, over the samples of
a batch inside the model, over heads or queries where attention adds up over keys, or over all of a graph's edges where
messages are added up node by node.

## Why it hurts
Probabilities then sum to 1 over the batch, so that every sample's output depends on the others it happens
to be with. Training goes on; evaluation with other batches gives other answers.

## Buggy
```python
weights = F.softmax(scores, dim=0)
```

## Fixed
```python
weights = F.softmax(scores, dim=-1)
```

## What looks like it and is fine
A softmax over rows that a loader has not drawn one by one is a warning: they may be the members of one set. Time-major
code, where the first dimension is time; a softmax over a dimension that was moved there on
purpose.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.records.finding import Finding

EXPLAINS = (
    "samples-mixed-in-batch",
    "logits-in-nll-loss",
    "future-tokens-in-logits",
    "ctc-input-not-log-probabilities",
)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


def check(loss_facts: LossFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    wrong = [
        loss
        for loss in loss_facts.losses
        if loss.function in ("cross_entropy", "nll_loss", "ctc_loss")
        and (
            (loss.above == "Softmax" and not loss.probabilities and loss.function != "ctc_loss")
            or (loss.above == "LogSoftmax" and not loss.log_probabilities)
        )
    ]
    turned = [loss for loss in loss_facts.losses if loss.turned_target]
    products = [each for each in model_facts.crossings if each.kind == "product"]
    misdirected = [each for each in model_facts.crossings if each.kind in ("samples", "alone")]
    mixing = [probe for probe in model_facts.probes if probe.softmax_over_batch and probe.other_samples > LEAKS]
    sure = not mixing or mixing[0].drawn
    if wrong:
        classes = wrong[0].classes or wrong[0].shape[-1]
        seen = f"{len(wrong)} losses were given a softmax that does not sum to 1 over the {classes} classes"
        where = wrong[0].where or "the recipe's loss"
    elif mixing:
        seen = (
            f"the softmax in {mixing[0].softmax_over_batch} runs over the samples of a batch: changing one sample "
            f"changes the others by {mixing[0].other_samples:.2g} standard deviations"
        )
        where = mixing[0].softmax_over_batch
    elif turned:
        seen = f"the targets of {len(turned)} losses sum to 1 over another dimension than the classes"
        where = turned[0].where or "the recipe's loss"
    elif products:
        seen = f"a softmax over {products[0].seen} is followed by a sum over another dimension, or over each group"
        where = products[0].where
    elif misdirected:
        seen, where = f"a softmax runs over {misdirected[0].seen}", misdirected[0].where
    elif any(probe.softmax_over_queries for probe in model_facts.probes):
        where = next(probe.softmax_over_queries for probe in model_facts.probes if probe.softmax_over_queries)
        seen = f"the softmax in {where} runs over the queries of a square of scores, and logits see later tokens"
    else:
        return
    yield Finding(
        check="softmax-over-wrong-dimension",
        severity="error" if wrong or sure else "warning",
        seen=seen,
        where=where,
        why="probabilities are shared out among samples and not among classes, so outputs depend on the batch",
        remedy="take the softmax over the classes or keys, usually dim=-1",
    )
