"""view-in-place-of-transpose

## What it does
Reports a `view` or `reshape` that gives a tensor the sizes it would have after a transpose of two dimensions.

## Why it hurts
A view keeps numbers in their order. Columns viewed as rows are not rows: numbers of different positions, channels,
heads or samples are mixed up, and no shape is wrong.

## Buggy
```python
tokens = maps.view(batch, height * width, channels)  # maps is (batch, channels, height, width)
```

## Fixed
```python
tokens = maps.flatten(2).transpose(1, 2)
```

## What looks like it and is fine
Merging and splitting dimensions in their order; a view after the transpose.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding

EXPLAINS = ("samples-mixed-in-batch", "ctc-input-not-log-probabilities", "future-tokens-in-logits")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(model_facts: ModelFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    views = [each for each in model_facts.crossings if each.kind == "view"]
    views += [samples.crossing for samples in sample_facts.samples if samples.crossing is not None]
    if views:
        yield Finding(
            check="view-in-place-of-transpose",
            severity="warning",
            seen=f"{views[0].seen}: the sizes changed places, the numbers did not",
            where=views[0].where,
            why="a view keeps numbers in their order, so different positions or channels are mixed up",
            remedy="transpose or permute first; if the numbers really are in this order, allow this check",
        )
