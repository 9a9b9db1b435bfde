"""symmetric-initial-weights

## What it does
Reports weight matrices whose rows all start alike, a model of several layers that are all constant, and consecutive
layers that start constant and stay so through updates.

## Why it hurts
Units that start alike receive the same gradients and stay alike forever: the layer acts as one unit.

## Buggy
```python
nn.init.constant_(self.hidden.weight, 0.1)
```

## Fixed
```python
nn.init.kaiming_uniform_(self.hidden.weight)
```

## What looks like it and is fine
A single layer that starts at zero, for example a logistic regression, LoRA's second factor or the end of a residual
branch.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.units import counted

EXPLAINS = ("input-ignored", "update-without-gradients")
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        constant = layout.matrices >= 2 and layout.constant_matrices == layout.matrices
        all_constant = constant and not layout.leaves_zero  # layers side by side, not one after another
        stuck = layout.stuck if len(layout.stuck) >= 2 else ()
        if layout.alike_rows or all_constant or stuck:
            what = (
                f"all rows are alike in {counted(len(layout.alike_rows), 'weight')}, for example {layout.alike_rows[0]}"
                if layout.alike_rows
                else f"all {layout.matrices} weight matrices are constant"
                if all_constant
                else f"{len(stuck)} weight matrices are constant, for example {stuck[0]}, and stay so through updates"
            )
            yield Finding(
                check="symmetric-initial-weights",
                severity="error",
                seen=f"before the first update {what}",
                where=next(iter(layout.alike_rows or stuck), layout.model),
                why="units that start alike receive the same gradients and stay alike",
                remedy="draw weights at random: nn.init.kaiming_uniform_, or normal_ with a small standard deviation",
            )
