"""Losses: what losses were given and what came out of them."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Loss:
    """A call of one of torch's loss functions with gradients on."""

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
    """The operation that made the input, views left out."""
    logits_from: str = ""
    """The same of what a log-softmax was given, where that made the input."""
    targets: int = 0
    valid: int = 0
    """Targets that are not ignored."""
    distinct: int = 0
    """Distinct valid targets."""
    constant: float | None = None
    counts: tuple[int, ...] = ()
    """How often each class occurs, where targets are one class per sample."""
    backward: int = -1
    """The number of the backward that came next."""
    weights: list[float] = field(default_factory=list)
    """The gradient of what was back-propagated with respect to this loss."""
    broadcast: tuple[int, ...] = ()
    """The shape that input and target were spread to, if it is larger than both."""
    layout_fault: str = ""
    cut: bool = False
    """None of the numbers of its input is below zero, and many are zero."""
    turned_target: bool = False
    """The probabilities it is given as a target sum to 1 over another dimension than those of its input."""
    cosines: bool = False
    """Its input is a number times what lies between -1 and 1, as similarities do: it is wide on purpose."""
    ranks: bool = False
    """Its input puts what belongs to each sample before other things: the answer has its own place, and no class."""
    site: int = 0
    fixed_target: bool = False
    """What its input is compared with has no gradient."""
    of_outputs: bool = False
    """Of a distance: what it is given left a model as it is, or as a view of that."""
    target_print: int = 0
    """A hash of the targets; 0 where they were not read."""
    class_numbers: int = 0
    """Of a distance: how many classes its targets count, where they are one whole number per sample from 0 on."""


@dataclass(slots=True)
class Aim:
    """Which way a backward pushed a prediction, beside a target it was compared with; `Signature` says what is what."""

    model: str
    update: int
    backward: int
    kind: str
    sign: int
    values: str
    above: str
    """The operation that made the prediction, views left out."""
    cut: bool = False
    """None of its numbers is below zero, and many are zero."""
    targets: int = 0
    constant: float | None = None
    class_numbers: int = 0
    even: bool = True
    excess: float = 0.0
    apart: bool = False
    """The prediction may be a distance: none of its numbers is below zero, and it is no share that a sigmoid made."""
    ranks: bool = False
    """The prediction is scores of candidates that every sample has for itself, or a difference of scores."""


@dataclass(slots=True)
class Likelihood:
    """Which way a backward moved the logarithms of probabilities, or their products with rewards, of one line."""

    where: str
    backward: int
    sign: int
    """1 where all of them are raised, -1 where all are lowered, 0 where both happens or some count more."""
    of_data: bool
    """Of what was given, and not of what was drawn."""


@dataclass(slots=True)
class Term:
    """A number that was made from parameters and added, without a gradient, to what was back-propagated."""

    where: str
    value: float


@dataclass(frozen=True, slots=True)
class LossFacts:
    """All facts of this subject."""

    losses: tuple[Loss, ...] = ()
    aims: tuple[Aim, ...] = ()
    likelihoods: tuple[Likelihood, ...] = ()
    reductions: tuple[Loss, ...] = ()
    """Means and sums to one number that losses are made of by hand."""
    terms: tuple[Term, ...] = ()
    flat_lines: tuple[str, ...] = ()
    """Lines of the loss that round, or take the sign of, what is back-propagated."""
    emptied_lines: tuple[str, ...] = ()
    """Lines of the loss that multiply it by a mask of zeros, or pick none of it, whenever they run."""
