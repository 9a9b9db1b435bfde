"""overflowing-mask-value

## What it does
Reports mask values that half precision cannot hold, and softmax rows in which everything is masked.

## Why it hurts
A product with -1e9 is minus infinity in float16, and 0 times that is NaN. A softmax over nothing but minus infinity
is also NaN, and the NaN spreads to every weight.

## Buggy
```python
scores = scores + (1 - mask).half() * -1e9
```

## Fixed
```python
scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
```

## What looks like it and is fine
Minus infinity in rows that keep at least one entry; rows of NaN that are set to zero before anything uses them.
"""

import math
from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.records.finding import Finding

EXPLAINS = ("nonfinite-gradients",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""


def check(loop_facts: LoopFacts, precision_facts: PrecisionFacts) -> Iterator[Finding]:
    spreads = _spreads(loop_facts, precision_facts)
    masks = [each for each in precision_facts.coarse if each.kind == "mask" and (spreads or not math.isinf(each.value))]
    if masks:
        first = masks[0]
        kind = (
            "a softmax has rows in which every entry is masked"
            if first.value == float("-inf")
            else f"{first.value:.3g} does not fit into {first.dtype}"
        )
        yield Finding(
            check="overflowing-mask-value",
            severity="error" if spreads else "warning",
            seen=kind,
            where=first.where,
            why="the result is NaN, which spreads to every weight" if spreads else "0 times the result is NaN",
            remedy="mask with torch.finfo(dtype).min, and keep at least one entry in every row",
        )


def _spreads(loop_facts: LoopFacts, precision_facts: PrecisionFacts) -> bool:
    """Is a loss or a gradient infinite or NaN, or was an update skipped for that?"""
    skipped = precision_facts.scaling is not None and precision_facts.scaling.skipped > 0
    values = (each.value for each in loop_facts.backwards if each.value is not None)
    return skipped or any(each.nonfinite for each in loop_facts.updates) or not all(map(math.isfinite, values))
