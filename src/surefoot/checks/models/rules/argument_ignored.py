"""argument-ignored

## What it does
Reports an argument of a model, or of a loss that is a module, whose values change no output. The argument is replaced
on a copy, in several ways, in training and in evaluation mode.

## Why it hurts
A diffusion model that ignores its time step, a decoder that ignores its condition or a mask that is never applied still
trains. It learns something else than you think.

## Buggy
```python
def forward(self, x, t):
    embedded = self.embed_time(t)
    return self.net(x)
```

## Fixed
```python
def forward(self, x, t):
    return self.net(x + self.embed_time(t))
```

## What looks like it and is fine
Arguments that are one number everywhere; labels and targets that a model leaves to its loss; lengths, sizes and ids;
fields of a dict; arguments behind weights that begin as zero, as in adaLN-zero, LoRA and zero convolutions: the weights
are disturbed too.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    deaf = {each.model for each in model_facts.probes if each.ignores_input or each.ignores_text}
    for each in model_facts.ignored_arguments:
        if each.called not in deaf:
            yield Finding(
                check="argument-ignored",
                severity="warning",
                seen=f"no output of {each.called} changes when `{each.argument}`, of shape {each.shape}, is replaced; "
                f"{each.ways} other values were tried",
                where=each.called,
                why="what the argument says is lost: a time step, mask or condition without effect",
                remedy=f"use `{each.argument}` in forward, or remove it",
            )
