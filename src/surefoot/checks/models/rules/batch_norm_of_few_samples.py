"""batch-norm-of-few-samples

## What it does
Mentions BatchNorm layers that normalise over fewer than eight values per channel.

## Why it hurts
The mean and variance of so few values are noise. Accumulating gradients does not help: statistics are per
micro-batch.

## Buggy
```python
micro_batch_size = 2  # with BatchNorm1d
```

## Fixed
```python
micro_batch_size = 16  # or GroupNorm, LayerNorm
```

## What looks like it and is fine
Small batches of large images.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        if layout.fewest_per_channel is not None and layout.fewest_per_channel < 8:
            yield Finding(
                check="batch-norm-of-few-samples",
                severity="info",
                seen=f"{layout.few_in} normalised over {layout.fewest_per_channel} values per channel",
                where=layout.few_in,
                why="mean and variance of so few values are noise",
                remedy="use larger micro-batches, or GroupNorm or LayerNorm",
            )
            return
