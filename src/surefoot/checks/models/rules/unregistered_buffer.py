"""unregistered-buffer

## What it does
Mentions floating-point tensors that are plain attributes of a module.

## Why it hurts
`.to(device)` does not move them, and `state_dict()` does not contain them.

## Buggy
```python
self.mask = torch.tril(torch.ones(length, length))
```

## Fixed
```python
self.register_buffer("mask", torch.tril(torch.ones(length, length)), persistent=False)
```

## What looks like it and is fine
Tensors that are rebuilt whenever they are needed.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        kept = [name for name in layout.unregistered if name not in layout.lost_state]
        if kept:
            yield Finding(
                check="unregistered-buffer",
                severity="info",
                seen=f"{counted(len(kept), 'tensor')} of {layout.model}, neither parameter nor buffer: "
                f"{', '.join(kept[:3])}",
                where=kept[0],
                why="they are neither moved nor saved with the model",
                remedy="register them as buffers, with persistent=False where they can be computed",
            )
