"""symmetric-initial-weights

## What it does
Reports weight matrices whose rows all start alike, or a model of several layers that are all constant.

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

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for layout in evidence.layouts:
        all_constant = layout.matrices >= 2 and layout.constant_matrices == layout.matrices
        if layout.alike_rows or all_constant:
            what = (
                f"the rows of {len(layout.alike_rows)} weight matrices are all alike, such as {layout.alike_rows[0]}"
                if layout.alike_rows
                else f"all {layout.matrices} weight matrices are constant"
            )
            yield Finding(
                check="symmetric-initial-weights",
                severity="error",
                seen=f"before the first update {what}",
                where=layout.alike_rows[0] if layout.alike_rows else layout.model,
                why="units that start alike receive the same gradients and stay alike",
                remedy="draw weights at random: nn.init.kaiming_uniform_, or normal_ with a small standard deviation",
            )
