"""softmax-over-wrong-dimension

## What it does
Reports a softmax over the wrong dimension. Right before the loss or in its targets it does not run over the classes;
inside the model it runs over the samples of a batch, over heads or queries where attention sums over keys, or over
all edges of a graph where messages are summed per node.

## Why it hurts
Probabilities then sum to 1 over the batch, so the output of every sample depends on the others in its batch. Training
still runs; evaluation with other batches gives other answers.

## Buggy
```python
weights = F.softmax(scores, dim=0)
```

## Fixed
```python
weights = F.softmax(scores, dim=-1)
```

## What looks like it and is fine
Time-major code, where the first dimension is time; a softmax over a dimension that was moved there on purpose. A
softmax over rows that no loader drew one by one is only a warning: they may be the members of one set.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

EXPLAINS = (
    "samples-mixed-in-batch",
    "logits-in-nll-loss",
    "future-tokens-in-logits",
    "ctc-input-not-log-probabilities",
)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


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
    # The nearest to the cause first: a loss saw the wrong sums itself, a probe sees only what follows from them.
    if wrong:
        classes = wrong[0].classes or wrong[0].shape[-1]
        seen = f"{counted(len(wrong), 'loss')} received a softmax that does not sum to 1 over the {classes} classes"
        where = wrong[0].where or "the recipe's loss"
    elif mixing:
        seen = (
            f"the softmax in {mixing[0].softmax_over_batch} runs over the samples of a batch: changing one sample "
            f"changes the others by {mixing[0].other_samples:.2g} standard deviations"
        )
        where = mixing[0].softmax_over_batch
    elif turned:
        seen = f"the targets of {counted(len(turned), 'loss')} sum to 1 over a dimension that is not the classes"
        where = turned[0].where or "the recipe's loss"
    elif products:
        seen = f"a softmax over {products[0].seen} is followed by a sum over another dimension, or per group"
        where = products[0].where
    elif misdirected:
        seen, where = f"a softmax runs over {misdirected[0].seen}", misdirected[0].where
    elif any(probe.softmax_over_queries for probe in model_facts.probes):
        where = next(probe.softmax_over_queries for probe in model_facts.probes if probe.softmax_over_queries)
        seen = f"the softmax in {where} runs over the queries of square scores, and logits see later tokens"
    else:
        return
    yield Finding(
        check="softmax-over-wrong-dimension",
        severity="error" if wrong or sure else "warning",
        seen=seen,
        where=where,
        why="probabilities are split among samples instead of classes, so outputs depend on the batch",
        remedy="take the softmax over the classes or keys, usually dim=-1",
    )
