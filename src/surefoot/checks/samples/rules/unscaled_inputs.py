"""unscaled-inputs

## What it does
Reports inputs that enter the first layer as bytes from 0 to 255, scaled down or normalised twice, or in units that
make them tens, hundreds or thousands; in training, or only in evaluation. Also reports images that are normalised for
training but not for evaluation.

## Why it hurts
Layers are initialised for inputs near one. Inputs a hundred times as large saturate them, and one step moves their
outputs a hundred times as far; inputs a hundred times too small leave nothing to see.

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
to images in training only.
"""

from collections.abc import Iterator, Sequence

from surefoot.checks.facts.samples import Inputs, SampleFacts
from surefoot.records.finding import Finding

EXPLAINS = ("far-off-initial-loss",)
"""Findings of these checks are symptoms of this bug: they are skipped when it is found."""

_LARGE = 20.0
"""The largest root mean square of a feature; a standardised one is near 1."""
_BRIGHT, _SMALL = 10.0, 1e-3
"""No image is scaled to numbers this large, and no features to numbers this small."""

_TWICE, _FLAT = 3.5, 0.02
"""Normalised images have a root mean square near 1, and differ from pixel to pixel."""
_FEWEST, _BELOW = 8, -0.3
"""This many images without any value below zero differ from images that all have values well below it."""
_SPREAD, _MOVED = 1.7, 0.2
"""How much larger the deviation of normalised images is, and by how many raw deviations their mean has moved."""


def check(sample_facts: SampleFacts) -> Iterator[Finding]:
    for inputs in sample_facts.inputs:
        fault = _fault(inputs) or _left_as_it_is(inputs, sample_facts.inputs)
        if fault:
            lowest, highest = inputs.lowest, inputs.highest
            when = " in evaluation" if inputs.evaluated else ""
            yield Finding(
                check="unscaled-inputs",
                severity="warning",
                seen=f"the inputs of {inputs.layer}{when} lie between {lowest:.3g} and {highest:.3g}" + fault,
                where=inputs.layer,
                why="the model was trained on other inputs" if when else "layers are initialised for inputs near one",
                remedy=_remedy(inputs, fault),
            )
            return


def _remedy(inputs: Inputs, fault: str) -> str:
    if "twice" in fault:
        return "scale the inputs once: one of the two places that do it is enough"
    if inputs.image and inputs.lowest >= 0 and inputs.highest <= 255:
        return "divide bytes by 255, once"
    return "subtract the mean of the training samples, and divide by their deviation"


def _fault(inputs: Inputs) -> str:
    """What is wrong with a first layer's inputs, as the end of a sentence; empty if nothing is."""
    if inputs.size > _LARGE:
        return f", with a root mean square of {inputs.size:.3g}"
    if 0 < inputs.size < _SMALL:
        return f", with a root mean square of {inputs.size:.3g}, too small for a layer to tell samples apart"
    picture = inputs.image and len(inputs.shape) == 4
    if picture and 0 < inputs.highest - inputs.lowest < _FLAT < inputs.size:
        return ", as if divided by 255 twice before they were normalised"
    centred = inputs.size**2 <= 2 * inputs.deviation**2  # means of images are below 1, before and after
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
    """Do images fill 0 to 1 in evaluation but spread about another mean in training? Noise keeps the mean."""
    if not inputs.evaluated or not inputs.image or len(inputs.shape) != 4 or inputs.shape[0] < _FEWEST:
        return ""
    same = [each for each in all_inputs if (each.model, each.layer) == (inputs.model, inputs.layer)]
    trained = [each for each in same if not each.evaluated]
    raw = all(each.lowest >= 0 and each.highest <= 1 for each in same if each.evaluated)
    if not raw or not trained or inputs.deviation == 0 or any(each.lowest >= _BELOW for each in trained):
        return ""
    spread = min(each.deviation for each in trained) / inputs.deviation
    moved = min(abs(each.mean - inputs.mean) for each in trained) / inputs.deviation
    return ", and were normalised in training" if spread > _SPREAD and moved > _MOVED else ""


def _lies_below(inputs: Inputs) -> bool:
    """Do values fill -3 to 1, as values between 0 and 1 do after being mapped to -1 to 1 twice?"""
    return abs(inputs.lowest + 3) < 1e-3 and -1 < inputs.highest < 1 + 1e-3
