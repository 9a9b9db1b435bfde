"""padding-in-attention

## What it does
Reports outputs at real positions that change when only padded positions are changed, in models that take or build a
mask, and masks that hide text instead of padding. Padding is known from the mask, from lengths, from the embedding's
`padding_idx`, or as a token that only occurs at the ends of rows. Also reports scores that such a mask multiplies by
zero, or sets to a number near it, before a softmax: a score of zero still gets attention.

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
Recurrent and convolutional layers, which read padding next to text; sums over embeddings of zeros; models without any
mask; a softmax whose result is multiplied by the mask again.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

EXPLAINS = ("input-ignored",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(text_facts: TextFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    for probe in model_facts.probes:
        if probe.padding > LEAKS or probe.hides_text:
            change = f"outputs at real positions change by {probe.padding:.2g} standard deviations with the padding"
            yield Finding(
                check="padding-in-attention",
                severity="warning",
                seen=change if probe.padding > LEAKS else "the mask hides text instead of padding",
                where=probe.model,
                why="a sample's output depends on its padding",
                remedy="pass the mask on with the polarity that the layer expects, and mask with minus infinity",
            )
            return
    for line in text_facts.lenient_masks[:1]:
        yield Finding(
            check="padding-in-attention",
            severity="warning",
            seen="scores of padding are set to zero or near it before a softmax, so padding still gets attention",
            where=line,
            why="a sample's output depends on how long its padding is",
            remedy="set scores of padding to minus infinity: scores.masked_fill(~mask, float('-inf'))",
        )
