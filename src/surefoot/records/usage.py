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
class Usage:
    """One step. The `memory/` accounts are those live at the peak, so they add up to `peak.peak_bytes`."""

    tally: Tally = Tally()
    peak: Peak = Peak()
    phase_peaks: dict[str, Peak] = field(default_factory=dict)
    largest: tuple[Holding, ...] = ()
    work: tuple[Work, ...] = ()
    """Every operator, where they were booked."""
