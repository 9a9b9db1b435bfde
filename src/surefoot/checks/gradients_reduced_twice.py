"""gradients-reduced-twice

## What it does
Reports gradients that are exchanged by hand after DistributedDataParallel has done so.

## Why it hurts
The wrapper has already averaged them. A sum by hand makes them as many times too large as there are ranks;
a second division makes them too small.

## Buggy
```python
loss.backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
```

## Fixed
```python
loss.backward()
```

## What looks like it and is fine
Exchange by hand without the wrapper; metrics and losses that are reduced for printing.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    ranks = evidence.ranks
    if ranks is not None and ranks.reduced_again:
        yield Finding(
            check="gradients-reduced-twice",
            severity="error",
            seen=f"gradients of a model under DistributedDataParallel were reduced by hand: {ranks.reduced_again}",
            where=ranks.reduced_again,
            why=f"the wrapper has averaged them already: a sum makes them {ranks.count} times too large",
            remedy="leave the exchange to the wrapper",
        )
