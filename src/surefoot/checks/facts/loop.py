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
    """Of a model in evaluation mode: layers in that mode among parameters that are trained."""
    trained: bool = False
    """An optimizer that holds parameters of this model updated them afterwards."""
    backpropagated: bool = False
    builds_graph: bool = False
    input_graded: bool = False
    """An input asks for a gradient itself, as for a saliency map."""
    derived: bool = False
    """`torch.autograd.grad` was asked for a gradient of what came of it."""
    graph_kept: bool = False
    """Its graph was never back-propagated and still existed two updates or two evaluated batches later."""
    shapes: tuple[tuple[int, ...], ...] = ()
    batch: int = 0
    """A hash of the inputs; 0 where they were not read."""
    reseeded: bool = False
    """It began with the random state that the forward of the step before began with, and drew from it."""
    float16: bool = False
    """Computed in float16, by autocast or by its parameters."""
    overwritten: tuple[str, ...] = ()
    """Parameters whose values changed behind autograd's back before its backward."""
    wrote_input: bool = False
    fed_by: str = ""
    """An input without a graph was returned by this model, "itself", or by "another"."""
    late_backward: bool = False
    """Its own optimizer had already made an update when its backward came."""
    update: int = 0


@dataclass(slots=True)
class Backward:
    """A call of backward: where, and what hangs on the loss."""

    where: str
    differentiable: bool
    """The loss has a graph behind it, or asks for a gradient itself."""
    reaches_optimized: bool
    """At least one parameter that an optimizer holds is in that graph."""
    followed_by_update: bool
    double_softmax: tuple[str, ...]
    """Modules whose softmax goes straight into a log-softmax."""
    double_sigmoid: tuple[str, ...] = ()
    """Modules whose sigmoid or softmax goes straight into a sigmoid."""
    nodes: int = 0
    old_nodes: int = 0
    """Those made before the last two updates."""
    repeated: bool = False
    """The same loss had been back-propagated since the last update."""
    shapes: tuple[Any, ...] = ()
    """The shapes of all model inputs since the backward before."""
    update: int = 0
    ascends: bool = False
    """The loss is the negative of a mean of squares or of absolute values."""
    cleared: bool = False
    """Its gradients were cleared before the next update, or a scaler has left out the update they were for."""
    in_update: bool = False
    """Made by a closure, inside an update."""
    site: int = 0
    """The very call, told apart from others on its line."""
    value: float | None = None
    """The loss; None where it was not read, or is not one number."""
    scale: float = 1.0
    """By which a gradient scaler had multiplied it."""
    joint: float | None = None
    """Of a loss that is a sum of terms, by what it was multiplied, a scale included; None where it was not read."""
    optimizers: frozenset[int] = frozenset()
    """The numbers of the optimizers that hold something of what it reaches."""
    asked: bool = False
    """No call of backward: its gradients were returned, and added to no others."""
    idle: frozenset[int] = frozenset()
    """Of those, the ones that make no update and hold something that none which makes one holds."""
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
    """Parameters whose gradients still held what an earlier step had used."""
    with_gradient: int = 0
    all_zero: bool | None = None
    """Gradients exist and every element is zero; None where they were not read."""
    nonfinite: tuple[str, ...] = ()
    rate: float = 1.0
    """The largest learning rate of its groups."""
    planned_rate: float | None = None
    """The largest that a scheduler starts from, or that the optimizer was made with; None where it has none."""
    moved: bool | None = None
    """Some parameter with a gradient changed; None where that was not looked at."""
    lost_share: float = 0.0
    """Of the half-precision elements with a gradient, the share that did not change."""
    still: frozenset[str] = frozenset()
    """Half-precision parameters of which hardly an element changed."""
    half: str = ""
    """The dtype of those elements."""
    in_autocast: bool = False
    """One autocast region has been open since the update before."""
    anomaly: bool = False
    profiled: bool = False
    clipped_share: float = 0.0
    """Of the elements of its gradients, the share that was clipped after the last backward."""
    micro_batches: int = 0
    """The backwards that it uses, and in how many lines they are."""
    lines: int = 0
    loaders: int = 0
    """So many loaders have handed out batches since the update before."""
    rescaled: bool = False
    """The loop itself multiplied or divided its gradients."""
    frozen: bool = False
    """None of its parameters had requires_grad."""


@dataclass(slots=True)
class Optimizing:
    """An optimizer, and what it holds."""

    kind: str
    updates: int
    parameters: int
    frozen: int
    """Parameters without requires_grad, in the update in which the fewest had none."""
    foreign: tuple[str, ...]
    """Shapes of trainable parameters that no backward reached and no model that ran has."""
    reached: int
    maximizes: bool = False
    of_models: bool = True
    """It holds parameters of a model that ran; an attack on a model holds none."""
    doubly_held: tuple[str, ...] = ()
    """Parameters that another optimizer updates in turns with this one."""
    moved: bool = False
    """Something that no optimizer updates, and it holds, is not what it was when a loss first reached it."""
    betas: tuple[float, float] | None = None
    """The first pair that a group has, where it has one, as the optimizers of the Adam family do."""


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
