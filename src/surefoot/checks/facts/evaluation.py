"""Evaluation: forwards without gradients, passes, thresholds and metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class Evaluation:
    """A forward without gradients of a model."""

    model: str
    active: tuple[str, ...]
    """Dropout and BatchNorm layers that ran in training mode."""
    update: int
    """How many updates had been made before."""
    repeated: bool
    """Inputs, weights and lines are those of the forward before: one batch is evaluated several times on purpose."""
    trained: bool = False
    copied: bool = False
    """The model is built like one that is trained, and is not trained itself: an average of its weights, perhaps."""
    samples: int = 0
    used: bool = True
    """Something was made of what it returned; else it only moved running statistics."""
    in_step: bool = False
    """It was given the batch, or something of it, that a forward with gradients was given next."""


@dataclass(slots=True)
class Threshold:
    """Scores of an evaluated model that are taken for what they are not."""

    where: str
    lowest: float
    highest: float
    seen: str = ""
    """What is done to them; empty where logits are compared with one half or rounded."""


@dataclass(slots=True)
class Metric:
    """A number that an evaluation makes of its batches."""

    kind: str
    """last, of which only the last batch's is kept, or mean, to which all count alike"""
    name: str
    where: str
    batches: int


@dataclass(slots=True)
class Pass:
    """Evaluations of one line, as their samples show."""

    model: str
    reordered: bool
    """The samples of the first came again in another order."""
    left_out: int
    """The last rows of an array that the others are evaluated from, fewer than a batch."""


@dataclass(frozen=True, slots=True)
class EvaluationFacts:
    """All facts of this subject."""

    evaluations: tuple[Evaluation, ...] = ()
    passes: tuple[Pass, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    metrics: tuple[Metric, ...] = ()
