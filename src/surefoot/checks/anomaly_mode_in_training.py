"""anomaly-mode-in-training

## What it does
Mentions updates made while autograd's anomaly detection is on.

## Why it hurts
It looks at every gradient and keeps a traceback for every operation: steps take several times as long.

## Buggy
```python
torch.autograd.set_detect_anomaly(True)
```

## Fixed
```python
torch.autograd.set_detect_anomaly(False)
```

## What looks like it and is fine
A search for the origin of a NaN.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    slow = [update for update in evidence.updates if update.anomaly]
    if slow:
        yield Finding(
            check="anomaly-mode-in-training",
            severity="info",
            seen=f"{len(slow)} of {len(evidence.updates)} updates were made with anomaly detection on",
            where=slow[0].where or "the loop",
            why="every operation keeps a traceback, so steps take several times as long",
            remedy="switch it on only to find a NaN",
        )
