"""nonfinite-gradients

## What it does
Reports updates made from gradients that hold infinity or NaN, and losses that are infinite or NaN themselves.

## Why it hurts
One infinite entry makes a clipped gradient zero or NaN everywhere, and after the update every weight is
NaN.

## Buggy
```python
loss = (scores / lengths).log().mean()  # a length of zero
```

## Fixed
```python
loss = (scores / lengths.clamp(min=1)).log().mean()
```

## What looks like it and is fine
Steps that a gradient scaler skips.
"""

import math
from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    spoilt = [update for update in loop_facts.updates if update.nonfinite]
    if spoilt:
        first = spoilt[0]
        yield Finding(
            check="nonfinite-gradients",
            severity="error",
            seen=f"{len(spoilt)} of {len(loop_facts.updates)} updates used infinite or NaN gradients; first in "
            f"update {first.number}: {len(first.nonfinite)} of {first.parameters} parameters, for example "
            f"{first.nonfinite[0]}",
            where=first.where or first.nonfinite[0],
            why="after such an update every weight it touches is NaN",
            remedy="look at the loss of that batch for log(0), division by zero or a mean over nothing",
        )
        return
    endless = [each for each in loop_facts.backwards if each.value is not None and not math.isfinite(each.value)]
    endless = [each for each in endless if each.scale == 1 and each.reaches_optimized]
    if len(endless) >= 2:
        yield Finding(
            check="nonfinite-gradients",
            severity="error",
            seen=f"in {len(endless)} backward calls the loss was {endless[0].value}, although gradients were finite",
            where=endless[0].where or "the recipe's loss",
            why="part of the loss has no gradient there, or a meaningless one",
            remedy="look at the loss of that batch for log(0), division by zero or an overflow",
        )
