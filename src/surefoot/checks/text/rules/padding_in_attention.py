"""padding-in-attention

## What it does
Reports outputs at real positions that change when only padded positions are changed, in models that are given a
mask or make one, and masks that leave out text in place of padding. Padding is known by the mask, by lengths,
by the table's `padding_idx`, or by a token that only stands at the ends of rows. Also reports scores that
such a mask multiplies by zero, or sets to a number near it, before a softmax: a score of zero has its share, too.

## Why it hurts
Padding takes part in attention: the mask is inverted, too weak (-1e4 beside large scores) or not passed on.
Outputs depend on what a sample is padded with.

## Buggy
```python
attention(x, key_padding_mask=mask)  # True means: ignore
```

## Fixed
```python
attention(x, key_padding_mask=~mask)
```

## What looks like it and is fine
Recurrent and convolutional layers, which read padding beside text; sums over embeddings of zeros; models without
any mask; a softmax whose result is multiplied by the mask again.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

EXPLAINS = ("input-ignored",)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


def check(text_facts: TextFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    for probe in model_facts.probes:
        if probe.padding > LEAKS or probe.hides_text:
            change = f"outputs at real positions change by {probe.padding:.2g} standard deviations with padded ones"
            yield Finding(
                check="padding-in-attention",
                severity="warning",
                seen=change if probe.padding > LEAKS else "the mask leaves out text, and not the padding",
                where=probe.model,
                why="a sample's output depends on its padding",
                remedy="pass the mask on, with the polarity that the layer expects, and mask with minus infinity",
            )
            return
    for line in text_facts.lenient_masks[:1]:
        yield Finding(
            check="padding-in-attention",
            severity="warning",
            seen="scores of padding are set to zero or near it before a softmax, and such a score has its share",
            where=line,
            why="a sample's output depends on how long its padding is",
            remedy="set scores of padding to minus infinity: scores.masked_fill(~mask, float('-inf'))",
        )
