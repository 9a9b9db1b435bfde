"""reseeded-steps

## What it does
Reports steps that all start with the same random state, or seed a generator of Python, of numpy or of their own with
the same number and draw from it.

## Why it hurts
A seed set inside the loop gives every step the same dropout mask and the same noise: the same units are
dropped for the whole run.

## Buggy
```python
for x, y in loader:
    torch.manual_seed(0)
    ...
```

## Fixed
```python
torch.manual_seed(0)
for x, y in loader:
    ...
```

## What looks like it and is fine
Seeding before an evaluation; steps that draw no random numbers; seeds derived from the step; a projection that a
model redraws from one seed.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.records.finding import Finding


def check(loop_facts: LoopFacts, sample_facts: SampleFacts) -> Iterator[Finding]:
    again = [forward for forward in loop_facts.forwards if forward.reseeded and forward.trained]
    if len(again) >= 2 or sample_facts.reseeded_updates >= 2:
        count, of = (
            (len(again), len(loop_facts.forwards))
            if again
            else (sample_facts.reseeded_updates, len(loop_facts.updates))
        )
        yield Finding(
            check="reseeded-steps",
            severity="warning",
            seen=f"{count} of {of} forward calls started with the random state of the step before",
            where=(again or loop_facts.forwards)[0].model,
            why="every step draws the same dropout mask and the same noise",
            remedy="seed once, before the loop, or derive the seed from the step",
        )
