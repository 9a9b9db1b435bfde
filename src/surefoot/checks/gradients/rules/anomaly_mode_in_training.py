"""anomaly-mode-in-training

## What it does
Mentions updates made while autograd's anomaly detection is on, and a profiler that is on for nearly all updates.

## Why it hurts
Anomaly detection checks every gradient and keeps a traceback for every operation; a profiler records every operation.
Steps take several times as long, and a profile grows until it is closed.

## Buggy
```python
torch.autograd.set_detect_anomaly(True)
```

## Fixed
```python
torch.autograd.set_detect_anomaly(False)
```

## What looks like it and is fine
A search for the origin of a NaN; a profiler with a schedule.
"""

from collections.abc import Iterator

from surefoot.checks.facts.loop import LoopFacts
from surefoot.records.finding import Finding

_MANY = 12
"""A profile of fewer updates is intended."""


def check(loop_facts: LoopFacts) -> Iterator[Finding]:
    slow = [update for update in loop_facts.updates if update.anomaly]
    profiled = [update for update in loop_facts.updates if update.profiled]
    if len(profiled) >= _MANY and len(profiled) >= 0.9 * len(loop_facts.updates):
        yield Finding(
            check="anomaly-mode-in-training",
            severity="info",
            seen=f"{len(profiled)} of {len(loop_facts.updates)} updates were made with a profiler on",
            where=profiled[0].where or "the loop",
            why="every operation is recorded, so steps take longer and memory grows",
            remedy="profile a few steps: torch.profiler.schedule(wait=1, warmup=1, active=3)",
        )
    if slow:
        yield Finding(
            check="anomaly-mode-in-training",
            severity="info",
            seen=f"{len(slow)} of {len(loop_facts.updates)} updates were made with anomaly detection on",
            where=slow[0].where or "the loop",
            why="every operation keeps a traceback, so steps take several times as long",
            remedy="turn it on only to find a NaN",
        )
