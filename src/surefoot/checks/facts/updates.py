"""Updates: clipping, schedules, and how weights were moved."""

from dataclasses import dataclass


@dataclass(slots=True)
class Clip:
    """A call of gradient clipping."""

    where: str
    parameters: int
    with_gradient: int
    used_already: bool
    """The gradients are those that the last update has used."""
    scaled: bool
    """They are still multiplied by a scaler's scale."""
    optimized: bool
    """At least one of the parameters is held by an optimizer."""
    unlimited: bool
    """The limit is infinite: the call only measures."""
    trainable: bool = True
    """At least one of the parameters has requires_grad."""


@dataclass(slots=True)
class Schedule:
    """A scheduler of learning rates."""

    kind: str
    where: str
    calls: int
    updates: int
    """Of its own optimizer."""
    before_first_update: bool
    between_updates: int
    """How many calls usually come at a time."""
    horizon: int | None
    """After so many calls it is at its end."""
    turns: bool
    """Behind its horizon the rate rises again."""
    epoch: int | None
    """Batches in one pass over the training loader."""
    passes: int
    """Over the training loader, so far."""
    share_after_epoch: float | None
    """What is left of the rate after one pass, at the calls seen per update."""
    others_updated: int
    """Updates by other optimizers."""
    replaced: bool = False
    """Another optimizer updates what its own one holds."""
    rates: tuple[float, ...] = ()
    """The largest learning rate of its optimizer's groups in every update."""
    ended: bool = False
    """The script has run to its end."""
    optimizer: int = -1
    """The number of its optimizer."""
    by_hand: bool = False
    """There is no scheduler: the loop itself sets the rate."""
    idle_calls: int = 0
    """Calls since whose last one another optimizer had made updates, and its own one none."""


@dataclass(frozen=True, slots=True)
class UpdateFacts:
    """All facts of this subject."""

    clips: tuple[Clip, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    unused_limits: tuple[str, ...] = ()
    """Lines that limit gradients, or copies of them, into tensors that nothing uses."""
    carried_by_hand: int = 0
    """Weights were moved without an optimizer so often, and the gradients that moved them then added to."""
    benchmarks_kernels: bool = False
    """cuDNN chooses kernels by their speed, in a run that asks for deterministic ones."""
    idle_accelerator: str = ""
    """A device that this machine has, while every parameter lies on the CPU."""
