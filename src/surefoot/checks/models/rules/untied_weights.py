"""untied-weights

## What it does
Reports an output layer that starts with the values of an embedding but does not share them.

## Why it hurts
A tie that copies (`head.weight.data = embed.weight.data.clone()`) is no tie: the two tensors drift apart from the
first update on, with twice the parameters.

## Buggy
```python
self.head.weight.data = self.embed.weight.data.clone()
```

## Fixed
```python
self.head.weight = self.embed.weight
```

## What looks like it and is fine
Layers that are not tied and start differently.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        if layout.copied_ties:
            yield Finding(
                check="untied-weights",
                severity="warning",
                seen=f"{layout.copied_ties[0]} have equal values before the first update but are two tensors",
                where=layout.copied_ties[0].partition(" ")[0],
                why="they drift apart from the first update on",
                remedy="share the parameter: head.weight = embed.weight",
            )
