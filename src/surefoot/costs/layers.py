"""Judges the layers of a run: which gradients vanish or explode, and which layers are dead or saturated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from surefoot.records.finding import Finding
from surefoot.records.layers import Layer, LayersRow
from surefoot.units import first_of

MEASUREMENTS = 3
"""A verdict must hold in each of the last so many measured steps."""
FAR = 1000
"""A gradient vanishes or explodes if its norm is so many times smaller or larger than that of the median layer.

The same must hold against the last layer: where early gradients vanish, the last layer is far above the median.
"""
LARGE_UPDATE = 0.1
"""An update explodes if it changes the weights of its layer by more than this share of their norm."""
DEAD = 0.99
"""A layer is dead if at least this share of its activations is zero."""
SATURATED = 0.9
"""A layer is saturated if at least this share of its activations is at the ends of its range."""
CAN_DIE = ("Linear", "Conv", "ReLU", "ELU", "SELU", "GELU", "SiLU", "Mish", "Hardswish", "Threshold", "Embedding")
"""The kinds of layers whose zeros mean something, by the start of their name. A router returns zeros by design."""
WHY = {
    "not finite": ("an activation, a gradient or an update is not a finite number", "lower the learning rate"),
    "no gradient": (
        "no gradient reaches the parameters: they do not learn",
        "look for a detach, a dead layer above it, or an output that the loss does not use",
    ),
    "vanishing": (
        f"the gradient is less than 1/{FAR:,} of that of the median and the last layer: training hardly moves it",
        "add residual connections or normalisation, or change the initialisation or the activation",
    ),
    "exploding": (
        f"the gradient is more than {FAR:,} times that of the median and the last layer, or an update changes the "
        f"weights by more than {LARGE_UPDATE:.0%}: each step undoes what others learned",
        "lower the learning rate, clip with max_grad_norm, or add normalisation",
    ),
    "dead": (
        f"at least {DEAD:.0%} of the activations are zero: no gradient passes there",
        "lower the learning rate, or change the activation or the initialisation",
    ),
    "saturated": (
        f"at least {SATURATED:.0%} of the activations are at the ends of their range: hardly a gradient passes there",
        "normalise the inputs of the layer, or begin with smaller weights",
    ),
}
"""Each verdict with what it means and what to do, the worst first."""


def verdicts_of(rows: Sequence[LayersRow]) -> dict[str, str]:
    """The layers that do not learn as they should, each with a word of `WHY`. It reads the last measured steps."""
    last = rows[-MEASUREMENTS:]
    names = last[-1].layers if last else {}
    found = {name: _verdict(name, last) for name in names}
    return {name: verdict for name, verdict in found.items() if verdict}


def findings_of(rows: Sequence[LayersRow]) -> Iterator[Finding]:
    """One finding for each kind of verdict."""
    last = min(len(rows), MEASUREMENTS)
    when = "the only measured step" if last == 1 else f"each of the last {last} measured steps"
    for verdict, layers in by_verdict(rows).items():
        why, remedy = WHY[verdict]
        yield Finding(
            check=f"layers-{verdict.replace(' ', '-')}",
            severity="warning",
            seen=f"{verdict}: {layers}",
            where=f"{when}, up to step {rows[-1].step}",
            why=why,
            remedy=remedy,
        )


def by_verdict(rows: Sequence[LayersRow]) -> dict[str, str]:
    """The layers of each verdict, in words."""
    found: dict[str, list[str]] = {}
    for name, verdict in verdicts_of(rows).items():
        found.setdefault(verdict, []).append(name or "(model)")
    return {verdict: first_of(found[verdict], 5) for verdict in WHY if verdict in found}


def _verdict(name: str, rows: Sequence[LayersRow]) -> str:
    seen = [(row.layers[name], *_usual_gradients(row)) for row in rows if name in row.layers]
    return next((verdict for verdict in WHY if all(_LOOKS[verdict](*each) for each in seen)), "")


_LOOKS: dict[str, Callable[[Layer, float, float], bool]] = {
    "not finite": lambda layer, low, high: not all(map(math.isfinite, _numbers(layer))),
    "no gradient": lambda layer, low, high: layer.update_ratio is not None and not layer.gradient_norm,
    "vanishing": lambda layer, low, high: layer.gradient_norm is not None and layer.gradient_norm * FAR < low,
    "exploding": lambda layer, low, high: (
        (layer.gradient_norm or 0.0) > FAR * high or (layer.update_ratio or 0.0) > LARGE_UPDATE
    ),
    "dead": lambda layer, low, high: layer.kind.startswith(CAN_DIE) and (layer.zeros or 0.0) >= DEAD,
    "saturated": lambda layer, low, high: (layer.saturated or 0.0) >= SATURATED,
}
"""Whether a verdict holds for a layer, given the smaller and the larger of the usual gradients."""


def _numbers(layer: Layer) -> list[float]:
    return [each for each in vars(layer).values() if isinstance(each, float)]


def _usual_gradients(row: LayersRow) -> tuple[float, float]:
    """The gradient norms of the median and the last layer that have one, the smaller first."""
    norms = [each.gradient_norm for each in row.layers.values() if each.gradient_norm]
    return (min(median(norms), norms[-1]), max(median(norms), norms[-1])) if norms else (0.0, 0.0)
