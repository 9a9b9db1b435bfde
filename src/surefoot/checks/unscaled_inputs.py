"""unscaled-inputs

## What it does
Reports inputs that enter the first layer as bytes from 0 to 255, scaled down or normalised twice, or in units in
which they are tens, hundreds or thousands.

## Why it hurts
Layers are initialised for inputs near one. Inputs a hundred times as large saturate them, and one step moves
their outputs a hundred times as far; inputs a hundred times too small leave nothing to see.

## Buggy
```python
x = image.float()
```

## Fixed
```python
x = image.float() / 255
```

## What looks like it and is fine
A model that scales or normalises its inputs itself: what counts is what enters its first layer.
"""

from collections.abc import Iterator

from surefoot.checks.evidence import Evidence, Inputs
from surefoot.records.finding import Finding

_LARGE = 20.0
"""Of a feature's root mean square; what is standardised has one near 1."""
_BRIGHT, _SMALL = 10.0, 1e-3
"""No picture is scaled to such numbers, and no features are to such small ones."""

_TWICE, _FLAT = 3.5, 0.02
"""Pictures that are normalised have a root mean square near 1, and differ from pixel to pixel."""


def check(evidence: Evidence) -> Iterator[Finding]:
    for inputs in evidence.inputs:
        fault = _fault(inputs)
        if fault:
            yield Finding(
                check="unscaled-inputs",
                severity="warning",
                seen=f"what enters {inputs.layer} lies between {inputs.lowest:.3g} and {inputs.highest:.3g}" + fault,
                where=inputs.layer,
                why="layers are initialised for inputs near one",
                remedy="divide bytes by 255, once; take off the mean of other features and divide by their deviation",
            )
            return


def _fault(inputs: Inputs) -> str:
    """What is wrong with a first layer's inputs, as the end of a sentence; empty where nothing is."""
    if inputs.size > _LARGE:
        return f", with a root mean square of {inputs.size:.3g}"
    if 0 < inputs.size < _SMALL:
        return f", with a root mean square of {inputs.size:.3g}, as if scaled down twice"
    picture = inputs.image and len(inputs.shape) == 4
    if picture and 0 < inputs.highest - inputs.lowest < _FLAT < inputs.size:
        return ", as if divided by 255 twice before they were normalised"
    centred = inputs.size**2 <= 2 * inputs.deviation**2  # pictures' means are below 1, before and after
    if picture and inputs.lowest < 0 and ((inputs.size > _TWICE and centred) or _lies_below(inputs)):
        return f", with a root mean square of {inputs.size:.3g}, as if normalised twice"
    if not inputs.image or len(inputs.shape) < 2 or inputs.lowest < 0:
        return ""
    if len(inputs.shape) == 4 and inputs.size > _BRIGHT:
        return f", with a root mean square of {inputs.size:.3g}"
    if inputs.whole and 128 <= inputs.highest <= 255:
        return ", in whole numbers"
    twice = len(inputs.shape) == 4 and 0 < inputs.highest <= 1 / 128
    return ", as if divided by 255 twice" if twice else ""


def _lies_below(inputs: Inputs) -> bool:
    """Do values fill -3 to 1, as those between 0 and 1 do that are brought between -1 and 1 twice?"""
    return abs(inputs.lowest + 3) < 1e-3 and -1 < inputs.highest < 1 + 1e-3
