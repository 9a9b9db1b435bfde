"""ctc-input-not-log-probabilities

## What it does
Reports a `ctc_loss` whose input does not hold log-probabilities, or has samples in the time dimension.

## Why it hurts
`ctc_loss` takes log-probabilities as (time, samples, classes). Another layout raises no error, and the model learns
to print blanks.

## Buggy
```python
loss = F.ctc_loss(logits, targets, input_lengths, target_lengths)  # (samples, time, classes)
```

## Fixed
```python
loss = F.ctc_loss(logits.log_softmax(-1).transpose(0, 1), targets, input_lengths, target_lengths)
```

## What looks like it and is fine
Lengths that are shorter than the input.
"""

from collections.abc import Iterator

from surefoot.checks.facts.losses import LossFacts
from surefoot.records.finding import Finding


def check(loss_facts: LossFacts) -> Iterator[Finding]:
    faulty = [loss for loss in loss_facts.losses if loss.function == "ctc_loss" and loss.layout_fault]
    if faulty:
        yield Finding(
            check="ctc-input-not-log-probabilities",
            severity="error",
            seen=f"ctc_loss on {faulty[0].shape}: {faulty[0].layout_fault}",
            where=faulty[0].where or "the recipe's loss",
            why="no error is raised, and the model learns to print blanks",
            remedy="pass log_softmax of the logits as (time, samples, classes)",
        )
