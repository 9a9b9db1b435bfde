"""softmax-over-wrong-dimension

## What it does
Reports a softmax over another dimension than the classes right before the loss, or over the samples of a
batch inside the model.

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
Time-major code, where the first dimension is time; a softmax over a dimension that was moved there on
purpose.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    wrong = [
        loss
        for loss in evidence.losses
        if loss.function in ("cross_entropy", "nll_loss")
        and (
            (loss.above == "Softmax" and not loss.probabilities)
            or (loss.above == "LogSoftmax" and not loss.log_probabilities)
        )
    ]
    mixing = [probe for probe in evidence.probes if probe.softmax_over_batch and probe.other_samples > 1e-3]
    if wrong:
        seen = f"{len(wrong)} losses were given a softmax that does not sum to 1 over the {wrong[0].classes} classes"
        where = wrong[0].where or "the recipe's loss"
    elif mixing:
        seen = (
            f"the softmax in {mixing[0].softmax_over_batch} runs over the samples of a batch: changing one sample "
            f"changes the others by {mixing[0].other_samples:.2g} standard deviations"
        )
        where = mixing[0].softmax_over_batch
    elif any(probe.softmax_over_queries for probe in evidence.probes):
        where = next(probe.softmax_over_queries for probe in evidence.probes if probe.softmax_over_queries)
        seen = f"the softmax in {where} runs over the queries of a square of scores, and logits see later tokens"
    else:
        return
    yield Finding(
        check="softmax-over-wrong-dimension",
        severity="error",
        seen=seen,
        where=where,
        why="probabilities are shared out among samples and not among classes, so outputs depend on the batch",
        remedy="take the softmax over the classes or keys, usually dim=-1",
    )
