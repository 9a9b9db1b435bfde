"""Evaluation: forwards without gradients, passes, thresholds and metrics."""

from dataclasses import dataclass

from surefoot.checks.facts.series import Series


@dataclass(slots=True)
class Evaluation:
    """A forward of a model without gradients."""

    model: str
    active: tuple[str, ...]
    """Dropout and BatchNorm layers that ran in training mode."""
    update: int
    """The number of updates before it."""
    repeated: bool
    """It has the inputs, weights and lines of the previous forward: one batch is evaluated repeatedly on purpose."""
    trained: bool = False
    copied: bool = False
    """The model is not trained, but built like one that is. It may be an average of that model's weights."""
    samples: int = 0
    used: bool = True
    """Its outputs were used. If not, the forward only updated running statistics."""
    in_step: bool = False
    """Its batch, or part of it, was given to the next forward with gradients."""


@dataclass(slots=True)
class Threshold:
    """Scores of an evaluated model that are misread, for example logits treated as probabilities."""

    where: str
    lowest: float
    highest: float
    seen: str = ""
    """What is done to the scores; empty if logits are rounded or compared with one half."""


@dataclass(slots=True)
class Metric:
    """A number that an evaluation computes from its batches."""

    kind: str
    """Either "last" if only the last batch is kept, "mean" if all batches have equal weight"""
    name: str
    where: str
    batches: int


@dataclass(slots=True)
class Pass:
    """The evaluations at one line, judged by their samples."""

    model: str
    reordered: bool
    """The samples of the first pass came again in another order."""
    left_out: int
    """The number of last rows of an array, fewer than a batch, that were never evaluated."""


@dataclass(frozen=True, slots=True)
class NeverUsed:
    """Something that the script makes and nothing reads."""

    kind: str
    """What it is, by how it is made: a loader, a mask, a copy of the weights."""
    name: str
    where: str
    overwritten: bool = False
    """The name gets another value before this one is read."""


@dataclass(frozen=True, slots=True)
class EvaluationFacts:
    """All facts of this subject."""

    evaluations: tuple[Evaluation, ...] = ()
    passes: tuple[Pass, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    metrics: tuple[Metric, ...] = ()
    never_used: tuple[NeverUsed, ...] = ()
    series: tuple[Series, ...] = ()
    """In the order in which they begin."""
