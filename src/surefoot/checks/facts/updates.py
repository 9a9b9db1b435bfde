"""Updates: clipping, schedules, and how weights were moved."""

from dataclasses import dataclass


@dataclass(slots=True)
class Clip:
    """A call of gradient clipping."""

    where: str
    parameters: int
    with_gradient: int
    used_already: bool
    """The last update already used these gradients."""
    scaled: bool
    """They are still multiplied by the scale of a gradient scaler."""
    optimized: bool
    """An optimizer holds at least one of the parameters."""
    unlimited: bool
    """The limit is infinite: the call only measures."""
    trainable: bool = True
    """At least one of the parameters has requires_grad."""


@dataclass(slots=True)
class Schedule:
    """A learning rate scheduler."""

    kind: str
    where: str
    calls: int
    updates: int
    """Updates of its own optimizer."""
    before_first_update: bool
    between_updates: int
    """How many calls usually come in a row."""
    horizon: int | None
    """The number of calls after which it ends."""
    turns: bool
    """After its horizon the learning rate rises again."""
    epoch: int | None
    """The number of batches in one pass over the training loader."""
    passes: int
    """The passes over the training loader so far."""
    share_after_epoch: float | None
    """The share of the learning rate that is left after one pass, at the observed calls per update."""
    others_updated: int
    """Updates by other optimizers."""
    replaced: bool = False
    """Another optimizer updates the parameters of its optimizer."""
    rates: tuple[float, ...] = ()
    """The largest learning rate of its optimizer in every update."""
    ended: bool = False
    """The script has run to its end."""
    optimizer: int = -1
    """The number of its optimizer."""
    by_hand: bool = False
    """There is no scheduler: the loop sets the learning rate itself."""
    idle_calls: int = 0
    """Calls before which only other optimizers had made updates since the previous call."""


@dataclass(frozen=True, slots=True)
class UpdateFacts:
    """All facts of this subject."""

    clips: tuple[Clip, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    unused_limits: tuple[str, ...] = ()
    """Lines that clip gradients, or copies of them, into tensors that nothing uses."""
    carried_by_hand: int = 0
    """How often weights were changed without an optimizer while their gradients kept accumulating."""
    benchmarks_kernels: bool = False
    """cuDNN benchmarks its kernels although the run asks for deterministic ones."""
    idle_accelerator: str = ""
    """A device of this machine that is unused: every parameter is on the CPU."""
