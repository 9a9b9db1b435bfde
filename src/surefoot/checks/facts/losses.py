"""Losses: what losses were given and what came out of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Loss:
    """A call of a torch loss function with gradients on."""

    function: str
    where: str
    reduction: str
    shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    update: int
    classes: int = 0
    value: float | None = None
    probabilities: bool = False
    """The input lies between 0 and 1 and sums to 1 over the classes."""
    log_probabilities: bool = True
    above: str = ""
    """The operation that made the input, not counting views."""
    logits_from: str = ""
    """The operation that made the logits, if the input is their log-softmax."""
    targets: int = 0
    valid: int = 0
    """Targets that are not ignored."""
    distinct: int = 0
    """Distinct valid targets."""
    constant: float | None = None
    counts: tuple[int, ...] = ()
    """How often each class occurs, if there is one class per sample."""
    backward: int = -1
    """The number of the next backward."""
    weights: list[float] = field(default_factory=list)
    """The gradient of the back-propagated value with respect to this loss."""
    broadcast: tuple[int, ...] = ()
    """The shape after broadcasting input and target, if it is larger than both."""
    layout_fault: str = ""
    cut: bool = False
    """No number of the input is negative, and many are zero."""
    turned_target: bool = False
    """The target probabilities sum to 1 over a different dimension than those of the input."""
    cosines: bool = False
    """The input is a scaled similarity between -1 and 1: its range is wide on purpose."""
    ranks: bool = False
    """Each sample has its own candidates: the target is the position of the right one, not a class."""
    site: int = 0
    fixed_target: bool = False
    """The target has no gradient."""
    of_outputs: bool = False
    """For a distance: its input is the output of a model, or a view of it."""
    target_print: int = 0
    """A hash of the targets; 0 if they were not read."""
    class_numbers: int = 0
    """For a distance: the number of classes, if targets are one whole number per sample, counted from 0."""


@dataclass(slots=True)
class Aim:
    """The direction in which a backward pushed a prediction relative to its target. `Signature` explains the fields."""

    model: str
    update: int
    backward: int
    kind: str
    sign: int
    values: str
    above: str
    """The operation that made the prediction, not counting views."""
    cut: bool = False
    """No number of the prediction is negative, and many are zero."""
    targets: int = 0
    constant: float | None = None
    class_numbers: int = 0
    even: bool = True
    excess: float = 0.0
    apart: bool = False
    """The prediction may be a distance: it has no negative numbers and is not the output of a sigmoid."""
    ranks: bool = False
    """The prediction scores candidates that differ from sample to sample, or is a difference of scores."""


@dataclass(slots=True)
class Likelihood:
    """The direction in which a backward moved the log-probabilities at one line, or their products with rewards."""

    where: str
    backward: int
    sign: int
    """1 if all are raised, -1 if all are lowered, 0 if both happen or their weights differ."""
    of_data: bool
    """They are probabilities of data, not of samples drawn from the model."""


@dataclass(slots=True)
class Term:
    """A number computed from parameters that was added to the loss without a gradient."""

    where: str
    value: float
    cut: str = ""
    """The function of torch by which it lost its graph."""


@dataclass(slots=True)
class Known:
    """A known term that was recognised at one line: how often its law held, and how it was broken."""

    kind: str
    """What it is: "divergence", "spread", "advantage", "bootstrap", "final states", "returns", "ratio", "clipping",
    "similarity", "noise" or "opponents".
    """
    where: str
    held: int = 0
    broken: int = 0
    fault: str = ""
    """What broke the law first."""


@dataclass(frozen=True, slots=True)
class LossFacts:
    """All facts of this subject."""

    losses: tuple[Loss, ...] = ()
    aims: tuple[Aim, ...] = ()
    likelihoods: tuple[Likelihood, ...] = ()
    reductions: tuple[Loss, ...] = ()
    """Means and sums to a single number that are used as handwritten losses."""
    terms: tuple[Term, ...] = ()
    flat_lines: tuple[str, ...] = ()
    """Lines that round the loss, or take its sign, before backward."""
    emptied_lines: tuple[str, ...] = ()
    """Lines that always multiply the loss by a mask of zeros, or select none of it."""
    known: tuple[Known, ...] = ()
    """Terms with a law of their own, by their lines."""

    def broken(self, kind: str, fewest: int = 3) -> Iterator[Known]:
        """The first line at which the law of a known term is always broken, and at least this often."""
        found = [each for each in self.known if each.kind == kind and each.broken >= fewest and not each.held]
        yield from found[:1]
