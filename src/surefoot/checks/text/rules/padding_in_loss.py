"""padding-in-loss

## What it does
Reports targets at padded positions that the loss counts, torch's own or one that is written by hand.

## Why it hurts
The model is trained to predict padding. The loss looks low, for padding is easy, and the gradient of short
samples is diluted.

## Buggy
```python
loss = F.cross_entropy(logits.flatten(0, 1), padded.flatten())
```

## Fixed
```python
loss = F.cross_entropy(logits.flatten(0, 1), padded.flatten(), ignore_index=pad)
```

## What looks like it and is fine
Padding that is ignored, weighed by zero or masked after the loss; rows that merely end alike.
"""

from collections.abc import Iterator

from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding


def check(text_facts: TextFacts) -> Iterator[Finding]:
    for sequence in text_facts.sequences:
        if sequence.padding_counted:
            yield Finding(
                check="padding-in-loss",
                severity="error",
                seen=f"{sequence.padding_counted:,} targets at padded positions count in the loss (padding known by "
                f"{sequence.padding_seen_by})",
                where=sequence.where or "the recipe's loss",
                why="the model is trained to predict padding, and short samples count for less",
                remedy="set targets at padded positions to ignore_index",
            )
