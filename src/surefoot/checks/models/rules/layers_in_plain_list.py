"""layers-in-plain-list

## What it does
Reports layers that a model keeps in a plain list, tuple, set or dict and uses in its loss.

## Why it hurts
`nn.Module` registers what you assign to it as an attribute; it does not look into plain containers. Such layers are
missing from `parameters()`, so no optimizer trains them; from `state_dict()`, so no checkpoint saves them; and from
`.to()`, `.train()` and `.eval()`.

## Buggy
```python
self.layers = [nn.Linear(64, 64) for _ in range(3)]
```

## Fixed
```python
self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
```

## What looks like it and is fine
A list of layers that are registered elsewhere in the same model; a frozen teacher hidden in a list on
purpose, so that it is neither saved nor trained.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding

EXPLAINS = ("dropout-in-evaluation", "unregistered-parameter", "optimizer-of-other-parameters")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    hidden = [module for module in model_facts.hidden_modules if module.reached]
    if not hidden:
        return
    untrained = any(not module.optimized for module in hidden)
    names = ", ".join(f"{module.path} ({module.kind})" for module in hidden[:3])
    yield Finding(
        check="layers-in-plain-list",
        severity="error" if untrained else "warning",
        seen=(
            f"{len(hidden)} layers with {sum(module.parameters for module in hidden):,} parameters take part "
            f"in the loss but are not registered: {names}" + (", ..." if len(hidden) > 3 else "")
        ),
        where=hidden[0].path.partition("[")[0],
        why=("no optimizer trains them and " if untrained else "") + "no state_dict saves them",
        remedy="keep layers in nn.ModuleList or nn.ModuleDict",
    )
