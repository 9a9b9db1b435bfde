"""linear-layers-in-a-row

## What it does
Reports a linear layer whose input is the unchanged output of another linear layer.

## Why it hurts
Two linear maps in a row are one: a deep network without activations can compute no more than a single layer.

## Buggy
```python
for layer in self.layers:
    x = layer(x)
```

## Fixed
```python
for layer in self.layers:
    x = F.relu(layer(x))
```

## What looks like it and is fine
Factors that are narrower than what they join, as in LoRA and factorised embeddings; pairs of which one layer is
frozen.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        if layout.in_a_row:
            yield Finding(
                check="linear-layers-in-a-row",
                severity="info",
                seen=f"there is nothing between {layout.in_a_row[0]}"
                + (f" and {len(layout.in_a_row) - 1} more pairs" if len(layout.in_a_row) > 1 else ""),
                where=layout.model,
                why="two linear layers in a row compute no more than one",
                remedy="put an activation between them, or merge them into one layer",
            )
            return
