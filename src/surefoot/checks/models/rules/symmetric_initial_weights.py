"""symmetric-initial-weights

## What it does
Reports weight matrices whose rows all start alike, a model of several layers that are all constant, and layers in a row
that start constant and that updates leave so.

## Why it hurts
Units that start alike receive the same gradients and stay alike for ever: the layer counts as one unit.

## Buggy
```python
nn.init.constant_(self.hidden.weight, 0.1)
```

## Fixed
```python
nn.init.kaiming_uniform_(self.hidden.weight)
```

## What looks like it and is fine
A single layer that starts at zero, such as a logistic regression, LoRA's second factor or the end of a
residual branch.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.records.finding import Finding
from surefoot.records.units import counted

EXPLAINS = ("input-ignored", "update-without-gradients")
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""


def check(model_facts: ModelFacts) -> Iterator[Finding]:
    for layout in model_facts.layouts:
        constant = layout.matrices >= 2 and layout.constant_matrices == layout.matrices
        all_constant = constant and not layout.leaves_zero  # layers side by side, and not one behind another
        stuck = layout.stuck if len(layout.stuck) >= 2 else ()
        if layout.alike_rows or all_constant or stuck:
            what = (
                f"all rows are alike in {counted(len(layout.alike_rows), 'weight')}, such as {layout.alike_rows[0]}"
                if layout.alike_rows
                else f"all {layout.matrices} weight matrices are constant"
                if all_constant
                else f"{len(stuck)} weight matrices are constant, such as {stuck[0]}, and updates do not change that"
            )
            yield Finding(
                check="symmetric-initial-weights",
                severity="error",
                seen=f"before the first update {what}",
                where=next(iter(layout.alike_rows or stuck), layout.model),
                why="units that start alike receive the same gradients and stay alike",
                remedy="draw weights at random: nn.init.kaiming_uniform_, or normal_ with a small standard deviation",
            )
