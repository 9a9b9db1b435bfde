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
    if len(again) >= 2:
        seen = (
            f"{len(again)} of {len(loop_facts.forwards)} forward calls started with the random state of the step before"
        )
    elif sample_facts.reseeded_updates >= 2:
        seen = f"{sample_facts.reseeded_updates} of {len(loop_facts.updates)} updates drew the same random numbers as "
        seen += "the update before"
    else:
        return
    yield Finding(
        check="reseeded-steps",
        severity="warning",
        seen=seen,
        where=next((each.model for each in again or loop_facts.forwards), "the loop"),  # a loop may have no module
        why="every step draws the same dropout mask and the same noise",
        remedy="seed once, before the loop, or derive the seed from the step",
    )
