"""low-precision-positions

## What it does
Reports positions that are counted in, cast to or multiplied in bfloat16 or float16 beyond what these can tell apart,
angles that are too large for them, and rotary frequencies that were cast to them.

## Why it hurts
bfloat16 counts to 256 and float16 to 2,048. Beyond that, neighbouring positions become the same number, and
the model cannot see their order.

## Buggy
```python
positions = torch.arange(length, dtype=torch.bfloat16)
```

## Fixed
```python
positions = torch.arange(length, dtype=torch.float32)
```

## What looks like it and is fine
Positions that were grouped into few buckets.
"""

from collections.abc import Iterator

from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.records.finding import Finding


def check(model_facts: ModelFacts, precision_facts: PrecisionFacts) -> Iterator[Finding]:
    coarse = [each for each in precision_facts.coarse if each.kind == "positions"]
    cast = [(layout.model, name) for layout in model_facts.layouts for name in layout.coarse_positions]
    if coarse:
        seen, where = f"positions up to {coarse[0].value:,.0f} are counted in {coarse[0].dtype}", coarse[0].where
    elif cast:
        seen, where = f"the frequencies {cast[0][1]} were cast to half precision", f"{cast[0][0]}.{cast[0][1]}"
    else:
        return
    yield Finding(
        check="low-precision-positions",
        severity="warning",
        seen=seen,
        where=where,
        why="neighbouring positions become the same number",
        remedy="compute positions and their tables in float32, and cast the result",
    )
