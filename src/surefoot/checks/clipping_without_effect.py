"""clipping-without-effect

## What it does
Reports gradient clipping that cannot work: after the update, before the backward, or on parameters that no
optimizer holds.

## Why it hurts
The gradients that an update uses are not limited, although the code says so. The first spike goes through.

## Buggy
```python
loss.backward()
optimizer.step()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
```

## Fixed
```python
loss.backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
```

## What looks like it and is fine
Clipping with an infinite limit, which measures the norm.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    clips = [clip for clip in evidence.clips if not clip.unlimited]
    if len(clips) < 2 or not evidence.updates:
        return
    faults = {
        "on gradients that the last update had already used": [each for each in clips if each.used_already],
        "on parameters without any gradient": [each for each in clips if not each.with_gradient and each.parameters],
        "on an empty list of parameters, such as a generator read before": [
            each for each in clips if not each.parameters
        ],
        "on parameters that no optimizer holds": [each for each in clips if each.parameters and not each.optimized],
    }
    for kind, found in faults.items():
        if len(found) >= len(clips) - 1:
            yield Finding(
                check="clipping-without-effect",
                severity="error",
                seen=f"{len(found)} of {len(clips)} calls were {kind}",
                where=found[0].where,
                why="the gradients that an update uses are not limited",
                remedy="clip the optimizer's parameters between backward and step",
            )
            return
