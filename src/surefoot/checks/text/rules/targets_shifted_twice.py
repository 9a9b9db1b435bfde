"""targets-shifted-twice

## What it does
Reports a token model whose targets lie two or more positions ahead of its inputs, or behind them.

## Why it hurts
If both the data and the model shift, the model learns to predict the token after the next. Generated text skips every
other word.

## Buggy
```python
loss = hf_model(input_ids=tokens[:, :-1], labels=tokens[:, 1:]).loss  # it shifts again
```

## Fixed
```python
loss = hf_model(input_ids=tokens, labels=tokens).loss
```

## What looks like it and is fine
Heads that predict several tokens ahead, next to one that predicts the next; models that read from right to left.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import LEAKS, ModelFacts
from surefoot.checks.facts.text import TextFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(text_facts: TextFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    shifts = {sequence.shift for sequence in text_facts.sequences}
    leftward = {probe.model for probe in model_facts.probes if probe.past < LEAKS < probe.future}
    for sequence in text_facts.sequences:
        meant = sequence.shift == -1 and sequence.model in leftward
        if sequence.shift is not None and sequence.shift not in (0, 1) and 1 not in shifts and not meant:
            yield Finding(
                check="targets-shifted-twice",
                severity="warning",
                seen=f"{sequence.match:.0%} of the targets equal the token {_distance(sequence.shift)}",
                where=sequence.where or "the recipe's loss",
                why="the model does not learn to predict the next token",
                remedy="shift once: in the data, or in the model",
            )
            return


def _distance(shift: int) -> str:
    return f"{counted(abs(shift), 'position')} {'ahead' if shift > 0 else 'behind'}"
