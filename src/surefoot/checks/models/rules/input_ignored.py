"""input-ignored

## What it does
Reports a model whose outputs do not change when all of its inputs are replaced. Warns of a model that looks up a text
which changes nothing, and of one whose inputs are all the same number.

## Why it hurts
A variable was overwritten, a branch is dead, or every unit is. The model can only learn a constant.

## Buggy
```python
def forward(self, x):
    x = torch.zeros_like(x)
    return self.net(x)
```

## Fixed
```python
def forward(self, x):
    return self.net(x)
```

## What looks like it and is fine
Models that ignore one of several inputs.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

EXPLAINS = ("detached-layers", "samples-mixed-in-batch", "end-token-ignored")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for probe in model_facts.probes:
        ignores = probe.ignores_input or probe.ignores_text
        if (ignores and not probe.time_over_samples) or probe.constant_input:
            yield Finding(
                check="input-ignored",
                severity="error" if probe.ignores_input else "warning",
                seen="no output changes when every input is replaced"
                if probe.ignores_input
                else "no output changes when a text in the input is replaced"
                if probe.ignores_text
                else "every element of every input is the same number",
                where=probe.model,
                why="the model can only learn a constant",
                remedy="look for an overwritten variable, a dead branch, or weights that are all zero",
            )
