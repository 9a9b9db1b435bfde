"""input-changed-in-place

## What it does
Mentions a forward that writes into the tensor it was given.

## Why it hurts
The caller still holds that tensor: a second look at the batch, a residual or a metric sees different numbers.

## Buggy
```python
def forward(self, x):
    x += self.block(x)
    return x
```

## Fixed
```python
def forward(self, x):
    return x + self.block(x)
```

## What looks like it and is fine
Writing into tensors that forward made itself.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    wrote = [forward for forward in loop_facts.forwards if forward.wrote_input]
    if wrote:
        yield Finding(
            check="input-changed-in-place",
            severity="info",
            seen=f"{len(wrote)} of {len(loop_facts.forwards)} forward calls wrote into their input",
            where=wrote[0].model,
            why="the caller of the model now holds changed data",
            remedy="write x = x + y, or clone the input first",
        )
