"""low-precision-running-sum

## What it does
Reports a sum that is kept in bfloat16 or float16 over several batches, and moving averages of weights in these
dtypes.

## Why it hurts
A bfloat16 sum of ones stops at 256. Averages of losses and metrics come out too small, and more so the longer the
epoch. A moving average of weights stands still: a hundredth of the difference is less than its last digit.

## Buggy
```python
total = torch.zeros((), dtype=torch.bfloat16)
total += loss.detach()
```

## Fixed
```python
total = torch.zeros((), dtype=torch.float32)
total += loss.detach()
```

## What looks like it and is fine
Sums within one step.
"""

from collections.abc import Iterator

from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.records.finding import Finding


def check(precision_facts: PrecisionFacts) -> Iterator[Finding]:
    sums = [each for each in precision_facts.coarse if each.kind == "sum"]
    if sums:
        yield Finding(
            check="low-precision-running-sum",
            severity="warning",
            seen=f"a running sum in {sums[0].dtype} spans several batches; it reached {sums[0].value:.4g}",
            where=sums[0].where,
            why="once the sum is a few hundred times the summand, it stops growing",
            remedy="sum in float32 or in Python",
        )
