"""data-position-lost-on-resume

## What it does
Reports a run that goes on in the middle of a pass over its data and begins that pass anew.

## Why it hurts
What the pass had already shown is shown again, and something else is never shown in it.

## Buggy
```python
state = torch.load("step_150.pt")  # a pass has 100 updates
for batch in loader:
    ...
```

## Fixed
```python
for batch in itertools.islice(loader, state["step"] % len(loader), None):
    ...
```

## What looks like it and is fine
Passes that are drawn with replacement, or streams without an end; files that are saved between passes.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.resumptions:
        if each.in_epoch and not each.skipped:
            yield Finding(
                check="data-position-lost-on-resume",
                severity="info",
                seen=f"{each.counter!r} is {each.loaded}, which is {each.in_epoch} updates into a pass; it begins anew",
                where=each.where,
                why="samples of the unfinished pass are seen twice, and others not at all",
                remedy="pass over the batches that are done, or keep the state of the sampler and of the generators",
            )
            return
