"""padding-in-loss

## What it does
Reports targets at padded positions that count in the loss, torch's own or a hand-written one.

## Why it hurts
The model is trained to predict padding. Padding is easy, so the loss looks low, and the gradient of short samples is
diluted.

## Buggy
```python
loss = F.cross_entropy(logits.flatten(0, 1), padded.flatten())
```

## Fixed
```python
loss = F.cross_entropy(logits.flatten(0, 1), padded.flatten(), ignore_index=pad)
```

## What looks like it and is fine
Padding that is ignored, weighted by zero or masked after the loss; rows that happen to end alike.
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
                seen=f"{sequence.padding_counted:,} targets at padded positions count in the loss (padding known from "
                f"{sequence.padding_seen_by})",
                where=sequence.where or "the recipe's loss",
                why="the model is trained to predict padding, and short samples count for less",
                remedy="set targets at padded positions to ignore_index",
            )
