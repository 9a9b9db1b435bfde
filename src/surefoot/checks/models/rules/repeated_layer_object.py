"""repeated-layer-object

## What it does
Reports a container that holds the same layer object several times, alone or among others, if it has parameters.

## Why it hurts
`[layer] * 6` repeats the object, not the layer: six names for one set of weights. The model has a sixth of the
parameters it seems to have.

## Buggy
```python
self.layers = nn.ModuleList([nn.Linear(64, 64)] * 6)
```

## Fixed
```python
self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
```

## What looks like it and is fine
A layer that is called several times; tied embeddings; towers that share weights.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        if layout.repeated_layers:
            yield Finding(
                check="repeated-layer-object",
                severity="warning",
                seen=f"{', '.join(layout.repeated_layers[:3])} holds the same layer object several times",
                where=layout.repeated_layers[0],
                why="it is one set of weights under several names",
                remedy="build each layer: nn.ModuleList(make() for _ in range(n)); to share one, call it repeatedly",
            )
