"""What one step took: its tally, and its memory peaks."""

from dataclasses import dataclass, field

from surefoot.records.tally import Tally
from surefoot.records.work import Work


@dataclass(frozen=True)
class Peak:
    """The moment at which the most bytes were live: how many, in which phase, after which operator."""

    peak_bytes: int = 0
    phase: str = ""
    module: str = ""
    operator: str = ""


@dataclass(frozen=True)
class Holding:
    """One storage that was live at the peak: its bytes, what it is for, and what made it."""

    size_bytes: int
    account: str
    module: str
    phase: str
    operator: str
    tensor: str
    """Dtype and shape of the tensor it was made for, such as `float32[8192, 50257]`."""


@dataclass(frozen=True)
class Timeline:
    """Live bytes over one step, at no more than `MOMENTS` moments, one of which is the peak.

    Moments follow each other as storages come and go, not as the clock does. Of a crowd of moments the one with the
    most bytes is kept, so that no peak is thinned away.
    """

    phases: tuple[str, ...] = ()
    """The phase at each moment."""
    accounts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of every account, its bytes at each moment; they add up to all that was live."""
    peak: int = 0
    """At which moment the step had its peak."""


@dataclass(frozen=True)
class Usage:
    """One step. The `memory/` accounts are those live at the peak, so they add up to `peak.peak_bytes`.

    `kept/` counts tensors that forwards or losses of several earlier steps made and that still live: a list that grows.
    """

    tally: Tally = Tally()
    peak: Peak = Peak()
    phase_peaks: dict[str, Peak] = field(default_factory=dict)
    largest: tuple[Holding, ...] = ()
    work: tuple[Work, ...] = ()
    """Every operator, where they were booked."""
    timeline: Timeline = field(default=Timeline(), compare=False)
    """A picture of the step; two steps are the same without it."""
