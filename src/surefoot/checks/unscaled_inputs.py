"""unscaled-inputs

## What it does
Reports images that enter the first layer as whole numbers from 0 to 255, or scaled down twice.

## Why it hurts
Layers are initialised for inputs near one. Inputs a hundred times as large saturate them; inputs a hundred
times too small leave nothing to see.

## Buggy
```python
x = image.float()
```

## Fixed
```python
x = image.float() / 255
```

## What looks like it and is fine
A model that scales its inputs itself; inputs that are no images.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence
from surefoot.records.finding import Finding


def check(evidence: Evidence) -> Iterator[Finding]:
    for inputs in evidence.inputs:
        if not inputs.image or len(inputs.shape) < 2:
            continue
        raw = inputs.whole and inputs.lowest >= 0 and 128 <= inputs.highest <= 255
        twice = len(inputs.shape) == 4 and inputs.lowest >= 0 and 0 < inputs.highest <= 1 / 128
        if raw or twice:
            yield Finding(
                check="unscaled-inputs",
                severity="warning",
                seen=f"what enters {inputs.layer} lies between {inputs.lowest:.3g} and {inputs.highest:.3g}"
                + (", in whole numbers" if raw else ""),
                where=inputs.layer,
                why="layers are initialised for inputs near one",
                remedy="divide bytes by 255, once, and normalise",
            )
            return
