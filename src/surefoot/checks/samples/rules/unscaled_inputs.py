"""unscaled-inputs

## What it does
Reports inputs that enter the first layer as bytes from 0 to 255, scaled down or normalised twice, or in units in
which they are tens, hundreds or thousands; in training, or in evaluation alone. Reports pictures that are normalised
for training, and not for evaluation.

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
A model that scales or normalises its inputs itself: what counts is what enters its first layer. Noise that is added
to pictures in training alone.
"""

from collections.abc import Iterator, Sequence

from surefoot.checks.facts.samples import Inputs, SampleFacts
from surefoot.records.finding import Finding

EXPLAINS = ("far-off-initial-loss",)
"""Checks whose findings are symptoms of this bug: they are left out where it is found."""

_LARGE = 20.0
"""Of a feature's root mean square; what is standardised has one near 1."""
_BRIGHT, _SMALL = 10.0, 1e-3
"""No picture is scaled to such numbers, and no features are to such small ones."""

_TWICE, _FLAT = 3.5, 0.02
"""Pictures that are normalised have a root mean square near 1, and differ from pixel to pixel."""
_FEWEST, _BELOW = 8, -0.3
"""So many pictures without anything below nought differ from those that all have something well below it."""
_SPREAD, _MOVED = 1.7, 0.2
"""How much larger the deviation is of what is normalised, and by how many deviations of the rest its mean has moved."""


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for inputs in sample_facts.inputs:
        fault = _fault(inputs) or _left_as_it_is(inputs, sample_facts.inputs)
        if fault:
            lowest, highest = inputs.lowest, inputs.highest
            when = " in evaluation" if inputs.evaluated else ""
            yield Finding(
                check="unscaled-inputs",
                severity="warning",
                seen=f"what enters {inputs.layer}{when} lies between {lowest:.3g} and {highest:.3g}" + fault,
                where=inputs.layer,
                why="the model has learned from other inputs" if when else "layers are initialised for inputs near one",
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


def _left_as_it_is(inputs: Inputs, all_inputs: Sequence[Inputs]) -> str:
    """Do pictures fill 0 to 1 in evaluation, which are spread about another mean in training? Noise keeps the mean."""
    if not inputs.evaluated or not inputs.image or len(inputs.shape) != 4 or inputs.shape[0] < _FEWEST:
        return ""
    same = [each for each in all_inputs if (each.model, each.layer) == (inputs.model, inputs.layer)]
    trained = [each for each in same if not each.evaluated]
    raw = all(each.lowest >= 0 and each.highest <= 1 for each in same if each.evaluated)
    if not raw or not trained or inputs.deviation == 0 or any(each.lowest >= _BELOW for each in trained):
        return ""
    spread = min(each.deviation for each in trained) / inputs.deviation
    moved = min(abs(each.mean - inputs.mean) for each in trained) / inputs.deviation
    return ", and was normalised in training" if spread > _SPREAD and moved > _MOVED else ""


def _lies_below(inputs: Inputs) -> bool:
    """Do values fill -3 to 1, as those between 0 and 1 do that are brought between -1 and 1 twice?"""
    return abs(inputs.lowest + 3) < 1e-3 and -1 < inputs.highest < 1 + 1e-3
