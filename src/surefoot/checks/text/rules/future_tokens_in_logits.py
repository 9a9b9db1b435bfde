"""future-tokens-in-logits

## What it does
Reports a next-token model whose logits change when only later tokens are changed. If several texts enter a model, it
looks at the one that the targets continue: the decoder's.

## Why it hurts
The answer is in the input. The loss falls far below what is possible, and the model is useless when it has
to write the next token itself. The causal mask is missing, transposed, off by one, or applied after the
softmax.

## Buggy
```python
scores = scores.masked_fill(torch.tril(ones) == 1, -math.inf)
```

## Fixed
```python
scores = scores.masked_fill(torch.tril(ones) == 0, -math.inf)
```

## What looks like it and is fine
Encoders and masked language models; a prefix that sees all of itself but carries no loss.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding

EXPLAINS = ("attention-across-documents",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(text_facts: TextFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    shifted = {sequence.model: sequence for sequence in text_facts.sequences if (sequence.shift or 0) >= 1}
    for probe in model_facts.probes:
        if probe.model in shifted and probe.future > LEAKS:
            yield Finding(
                check="future-tokens-in-logits",
                severity="error",
                seen=f"logits change by {probe.future:.2g} standard deviations when only later tokens are changed",
                where=probe.model,
                why="the model can read the token that it should predict",
                remedy="mask later tokens with minus infinity before the softmax: is_causal=True, or tril",
            )
