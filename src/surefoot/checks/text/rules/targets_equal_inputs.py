"""targets-equal-inputs

## What it does
Reports a causal model that is trained to output the token it has just read.

## Why it hurts
Targets that are not shifted can be copied from the input. The loss falls to zero and the model has learned
nothing.

## Buggy
```python
logits = model(tokens)
loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
```

## Fixed
```python
logits = model(tokens[:, :-1])
loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
```

## What looks like it and is fine
Autoencoders and masked language models, which see the whole sequence; models that shift inside; models that predict
an action before they are given it, so their outputs do not depend on the token at the same position.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding


def check(text_facts: TextFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    causal = {probe.model for probe in model_facts.probes if probe.future < LEAKS < min(probe.past, probe.present)}
    for sequence in text_facts.sequences:
        if sequence.shift == 0 and sequence.model in causal:
            yield Finding(
                check="targets-equal-inputs",
                severity="error",
                seen=f"{sequence.match:.0%} of the targets equal the token at their position, and the model is causal",
                where=sequence.where or "the recipe's loss",
                why="the answer can be copied from the input: the loss falls and nothing is learned",
                remedy="shift the targets by one: logits[:, :-1] against tokens[:, 1:]",
            )
