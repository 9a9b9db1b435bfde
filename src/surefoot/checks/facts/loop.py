"""Loop: forwards, backwards and updates, which every subject shares."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Forward:
    """A forward of a model with gradients on."""

    model: str
    training: bool
    mode_dependent: tuple[str, ...]
    resting: tuple[str, ...] = ()
    """In a model in evaluation mode: the layers in that mode that have trained parameters among them."""
    trained: bool = False
    """An optimizer that holds parameters of this model updated them afterwards."""
    backpropagated: bool = False
    builds_graph: bool = False
    input_graded: bool = False
    """An input requires a gradient, as for a saliency map."""
    derived: bool = False
    """`torch.autograd.grad` computed a gradient of its output."""
    graph_kept: bool = False
    """Its graph had no backward and still existed two updates or two evaluated batches later."""
    shapes: tuple[tuple[int, ...], ...] = ()
    batch: int = 0
    """A hash of the inputs; 0 if they were not read."""
    reseeded: bool = False
    """It drew random numbers, starting from the same random state as the forward of the previous step."""
    float16: bool = False
    """Computed in float16, by autocast or by its parameters."""
    overwritten: tuple[str, ...] = ()
    """Parameters whose values changed, unnoticed by autograd, before its backward."""
    wrote_input: bool = False
    fed_by: str = ""
    """The model that returned an input without a graph: "itself" or "another"."""
    late_backward: bool = False
    """Its optimizer made an update before its backward."""
    update: int = 0


@dataclass(slots=True)
class Backward:
    """A call of backward: where it was, and what the loss depends on."""

    where: str
    differentiable: bool
    """The loss has a graph or requires a gradient itself."""
    reaches_optimized: bool
    """The graph contains at least one parameter that an optimizer holds."""
    followed_by_update: bool
    double_softmax: tuple[str, ...]
    """Modules whose softmax goes straight into a log-softmax."""
    double_sigmoid: tuple[str, ...] = ()
    """Modules whose sigmoid or softmax goes straight into a sigmoid."""
    nodes: int = 0
    old_nodes: int = 0
    """The nodes made before the last two updates."""
    repeated: bool = False
    """The same loss already had a backward since the last update."""
    shapes: tuple[Any, ...] = ()
    """The shapes of all model inputs since the previous backward."""
    update: int = 0
    ascends: bool = False
    """The loss is the negative of a mean of squares or of absolute values."""
    cleared: bool = False
    """Its gradients were cleared before the next update, or a scaler skipped that update."""
    in_update: bool = False
    """It ran in a closure, inside an update."""
    site: int = 0
    """Identifies the call among others on its line."""
    value: float | None = None
    """The loss; None if it was not read or is not a single number."""
    scale: float = 1.0
    """The factor by which a gradient scaler multiplied it."""
    joint: float | None = None
    """If the loss is a sum of terms: its factor, including the scale; None if it was not read."""
    optimizers: frozenset[int] = frozenset()
    """The numbers of the optimizers that hold parameters it reaches."""
    asked: bool = False
    """Not a call of backward: the gradients were returned instead of added to `.grad`."""
    idle: frozenset[int] = frozenset()
    """Those of `optimizers` that make no update, and hold a parameter that no updating optimizer holds."""
    reach: int = 0
    """A hash of the parameters that it reaches."""


@dataclass(slots=True)
class Update:
    """A call of an optimizer's step."""

    number: int
    optimizer: int
    where: str
    parameters: int
    carried: tuple[str, ...]
    """Parameters whose gradients still contain what an earlier update already used."""
    with_gradient: int = 0
    all_zero: bool | None = None
    """Gradients exist and every element is zero; None if they were not read."""
    nonfinite: tuple[str, ...] = ()
    rate: float = 1.0
    """The largest learning rate of the groups."""
    planned_rate: float | None = None
    """The largest learning rate that a scheduler starts from or the optimizer was created with; None if there is none.
    """
    moved: bool | None = None
    """A parameter with a gradient changed; None if that was not checked."""
    lost_share: float = 0.0
    """The share of half-precision elements that did not change although they have a gradient."""
    still: frozenset[str] = frozenset()
    """Half-precision parameters that barely changed."""
    half: str = ""
    """The dtype of those elements."""
    in_autocast: bool = False
    """One autocast region has been open since the previous update."""
    anomaly: bool = False
    profiled: bool = False
    clipped_share: float = 0.0
    """The share of gradient elements that were clipped after the last backward."""
    micro_batches: int = 0
    """The number of backwards that it uses. `lines` is the number of lines they are on."""
    lines: int = 0
    loaders: int = 0
    """The number of loaders that returned batches since the previous update."""
    rescaled: bool = False
    """The loop multiplied or divided the gradients itself."""
    frozen: bool = False
    """None of its parameters had requires_grad."""


@dataclass(slots=True)
class Optimizing:
    """An optimizer and its parameters."""

    kind: str
    updates: int
    parameters: int
    frozen: int
    """The number of parameters without requires_grad: the smallest in any update."""
    foreign: tuple[str, ...]
    """Shapes of trainable parameters that no backward reached and that belong to no model that ran."""
    reached: int
    maximizes: bool = False
    of_models: bool = True
    """It holds parameters of a model that ran. The optimizer of an attack on inputs holds none."""
    doubly_held: tuple[str, ...] = ()
    """Parameters that another optimizer updates, too, in turns with this one."""
    moved: bool = False
    """It holds a parameter that no optimizer updates, and that changed since a loss first reached it."""
    betas: tuple[float, float] | None = None
    """The betas of the first group that has them, as in Adam."""


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """All facts of this subject."""

    forwards: tuple[Forward, ...] = ()
    backwards: tuple[Backward, ...] = ()
    updates: tuple[Update, ...] = ()
    optimizers: tuple[Optimizing, ...] = ()
    weights_by_hand: bool = False
    """Parameters changed although no optimizer made an update."""
    ended: bool = False
    """The script has run to its end."""
