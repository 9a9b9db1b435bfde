"""A spike, attributed: what a step was replayed with, and which single change brought its loss back."""

from dataclasses import dataclass
from typing import Literal

SpikeCause = Literal["samples", "learning-rate", "gradient", "precision", "unknown", "none"]


@dataclass(frozen=True)
class Symptom:
    """The step that stands out, and what its loss is held against."""

    step: int
    loss: float
    grad_norm: float | None
    usual: float | None
    """The median of the losses before it; None if too few were logged."""
    limit: float | None
    """A loss above this is a spike."""
    in_gradient: bool = False
    """Whether the loss is ordinary and the gradient is not finite."""
    shown_at: int = 0
    """The step that was asked for or stands out most, if the trouble began before it."""


@dataclass(frozen=True)
class Variation:
    """The step with one thing changed."""

    change: str
    loss: float
    cured: bool
    """Whether the loss is ordinary with this change."""


@dataclass(frozen=True)
class Attribution:
    """Why a step stands out. `symptom` is None if no step does."""

    run: str
    steps: int
    symptom: Symptom | None
    cause: SpikeCause = "none"
    said: str = ""
    remedy: str = ""
    samples: tuple[int, ...] = ()
    at_step: int = 0
    """The step whose samples, rate or gradient it is."""
    module: str = ""
    """The one module that must compute in float32."""
    from_step: int = 0
    as_logged: bool = True
    """Whether replaying without a change gave the numbers of the log, bit for bit."""
    nonfinite: str = ""
    """Where the first NaN or infinity appears."""
    variations: tuple[Variation, ...] = ()
