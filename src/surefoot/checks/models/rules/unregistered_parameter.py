"""unregistered-parameter

## What it does
Reports a tensor that collects gradients step after step and is neither a parameter of a model nor held by
an optimizer.

## Why it hurts
`torch.ones(n, requires_grad=True)` is not an `nn.Parameter`. It is not in `parameters()`, so no optimizer moves it,
and not in `state_dict()`, so no checkpoint saves it.

## Buggy
```python
self.scale = torch.ones(width, requires_grad=True)
```

## Fixed
```python
self.scale = nn.Parameter(torch.ones(width))
```

## What looks like it and is fine
Inputs that require a gradient, for example the points of an equation; learned tensors that an optimizer holds. A
tensor that no module has as an attribute is an info, not an error. Parameters that a module registers and no optimizer
holds are reported by `parameter-outside-optimizer`.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.units import counted


def check(loop_facts: LoopFacts, model_facts: ModelFacts) -> Iterator[Finding]:
    lost = [leaf for leaf in model_facts.leaves if leaf.backwards >= 2 and len(loop_facts.updates) >= 2]
    hidden = [module for module in model_facts.hidden_modules if module.reached]
    lost = [leaf for leaf in lost if not leaf.registered and (leaf.path or not hidden)]
    if lost:
        first = next((leaf for leaf in lost if leaf.path), next((leaf for leaf in lost if leaf.fixed), lost[0]))
        yield Finding(
            check="unregistered-parameter",
            severity="error" if first.path else "warning" if first.fixed else "info",
            seen=f"{counted(len(lost), 'tensor')}, one of shape {first.shape}, collected gradients in "
            f"{first.backwards} backward calls, outside of any model or optimizer",
            where=first.path or "the loop",
            why="nothing updates them and no checkpoint saves them",
            remedy="make them nn.Parameter attributes of a module, before the optimizer is built",
        )
