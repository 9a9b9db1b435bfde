"""merged-with-other-scaling

## What it does
Reports weights to which the product of an adapter was added with another factor than in the forward that was trained.
It looks at models that run without gradients, at weights that were changed in place, and at what `torch.save` writes.

## Why it hurts
LoRA multiplies the product by alpha / rank. If the merge leaves that out, or divides by another rank, the merged model
is not the one that was trained.

## Buggy
```python
layer.weight += lora_b @ lora_a
```

## Fixed
```python
layer.weight += (alpha / rank) * lora_b @ lora_a
```

## What looks like it and is fine
Adapters that are removed again; a mixture of several adapters; a merge in another number format.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

_NEAR = 0.05


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for merge in model_facts.merges:
        if abs(merge.merged_with - merge.trained_with) <= _NEAR * abs(merge.trained_with):
            continue
        left_out = abs(merge.merged_with - 1) < _NEAR
        yield Finding(
            check="merged-with-other-scaling",
            severity="error" if left_out else "warning",
            seen=f"{merge.name} was trained with its adapter times {merge.trained_with:.3g}, and merged with it times "
            f"{merge.merged_with:.3g}",
            where=merge.where or merge.name,
            why="the merged model is not the one that was trained",
            remedy=f"multiply the product by {merge.trained_with:.3g} (alpha / rank) in the merge",
        )
        return
