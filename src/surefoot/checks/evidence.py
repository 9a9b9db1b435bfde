"""Evidence: what a witness saw of a few steps. Plain facts; checks are pure functions over them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """A parameter of a model that ran."""

    name: str
    trainable: bool
    reached: bool
    """A backward put a gradient into it."""
    optimized: bool
    """An optimizer holds it."""


@dataclass(frozen=True)
class HiddenModule:
    """A module with parameters that sits in a plain container of a model, where torch does not see it."""

    path: str
    kind: str
    parameters: int
    reached: bool
    optimized: bool


@dataclass(frozen=True)
class Forward:
    """A forward with gradients: was the model in training mode, and which of its modules care?"""

    model: str
    training: bool
    mode_dependent: tuple[str, ...]
    trained: bool
    """An optimizer that holds parameters of this model updated them afterwards."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Update:
    """A call of an optimizer's step, and which gradients still held what an earlier step had used."""

    number: int
    where: str
    parameters: int
    carried: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """All of it."""

    parameters: tuple[Parameter, ...] = ()
    hidden_modules: tuple[HiddenModule, ...] = ()
    forwards: tuple[Forward, ...] = ()
    backwards: tuple[Backward, ...] = ()
    updates: tuple[Update, ...] = ()
