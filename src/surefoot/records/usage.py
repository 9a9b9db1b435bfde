"""The resources of one step: its tally, its memory peaks, and its operators."""

from dataclasses import dataclass, field

from surefoot.records.tally import Tally


@dataclass(frozen=True)
class Peak:
    """The moment with the most live bytes: how many, in which phase, after which operator."""

    peak_bytes: int = 0
    phase: str = ""
    module: str = ""
    operator: str = ""


@dataclass(frozen=True)
class Holding:
    """One storage that was live at the peak: its bytes, its purpose, and what made it."""

    size_bytes: int
    account: str
    module: str
    phase: str
    operator: str
    tensor: str
    """Dtype and shape of the tensor it was made for, for example `float32[8192, 50257]`."""


@dataclass(frozen=True)
class Timeline:
    """Live bytes over one step, at no more than `MOMENTS` moments, one of which is the peak.

    A moment is an allocation or a free, not a time. Of neighbouring moments the one with the most bytes is kept, so
    that thinning loses no peak.
    """

    phases: tuple[str, ...] = ()
    """The phase at each moment."""
    accounts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The bytes of every account at each moment. They add up to all live bytes."""
    peak: int = 0
    """The index of the peak's moment."""


TRANSFERS = ("to_host", "to_device")
"""Operators of `Work` that copy between the device and the memory of its host."""


@dataclass(frozen=True)
class Work:
    """Calls of one operator in one place, all of the same size.

    `format` is the number format it computes in, for example `bf16`. `bytes_moved` is the least that one call reads and
    writes. `shape` is that of a matrix product: batch, rows, columns, inner dimension; empty for other operators.
    If blocks are alike, a star replaces their number in `module`.
    """

    phase: str
    module: str
    operator: str
    format: str
    flops: int
    bytes_moved: int
    shape: tuple[int, ...] = ()
    calls: int = 1


@dataclass(frozen=True)
class Timed:
    """The measured time of one operator in one place of a step.

    `seconds` is the time of one call; None if it could not run on random numbers.
    """

    phase: str
    module: str
    operator: str
    is_product: bool
    calls: int
    seconds: float | None


@dataclass(frozen=True)
class Usage:
    """One step. The `memory/` accounts are the bytes live at the peak, so they add up to `peak.peak_bytes`.

    `kept/` counts live tensors from the forward or loss of several earlier steps: a list that grows.
    """

    tally: Tally = Tally()
    peak: Peak = Peak()
    phase_peaks: dict[str, Peak] = field(default_factory=dict)
    largest: tuple[Holding, ...] = ()
    work: tuple[Work, ...] = ()
    """Every operator, if operators were recorded."""
    timeline: Timeline = field(default=Timeline(), compare=False)
    """For charts; ignored when two steps are compared."""
