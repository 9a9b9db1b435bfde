"""The profile: time, memory and FLOPs of a few real steps of a recipe."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from surefoot.plain_files import make_folder, write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.shown import Shown
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage

FILE = "profile.json"
"""Where a run directory keeps its profile."""


@dataclass(frozen=True)
class Comparison:
    """Two variants timed in turns: the seconds of each step of both, in the order of the rounds.

    `ratio` is the median over rounds of after / before. With the given `confidence`, the true ratio lies between `low`
    and `high`. If 1 lies between them, no difference can be claimed.
    """

    before: str
    after: str
    before_seconds: tuple[float, ...]
    after_seconds: tuple[float, ...]
    ratio: float
    low: float
    high: float
    confidence: float

    @property
    def differs(self) -> bool:
        """Whether the difference is larger than the noise."""
        return not self.low <= 1 <= self.high


@dataclass(frozen=True)
class DeviceMemory:
    """The most bytes that a step took at once, as the allocator of the device counted it; None if it does not.

    `requested_bytes` is what tensors asked for; `allocated_bytes` is the same in whole blocks; `reserved_bytes` is what
    the allocator took from the device. `used_bytes` is what all processes use of the device, `used_before_bytes` the
    same before the model was built: other processes, and the context of this one.
    """

    requested_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None
    used_before_bytes: int | None = None
    total_bytes: int | None = None
    retries: int = 0
    """How often the allocator gave memory back because the device was full."""
    segments: Literal["classic", "expandable"] = "classic"


@dataclass(frozen=True)
class Profile(Shown):
    """A first and a steady step under the meters, `timed_steps` under the clock alone, then a few under a tracer.

    `counted` has the other counts: `syncs`, `moved` bytes, `backwards`, and tensors `kept` from step to step.
    `traced` says where the time went, as `time/PHASE/MODULE/OPERATOR`. In each phase the tracer gives the shares and
    the clock the seconds, so that no module pays for the tracing. `traced_over_timed` is the slowdown by tracing.
    """

    recipe: str
    knobs: dict[str, str | int | float | bool | None]
    device: str
    parameters: int
    first: Usage
    steady: Usage
    timed_steps: int
    step_seconds: tuple[float, ...]
    clock: Tally
    ranks: int = 1
    """Of several ranks, this is the first one's profile."""
    allocated_peak_bytes: int | None = None
    """The peak of a steady step in torch's own allocator, if it could be counted."""
    device_memory: DeviceMemory | None = None
    """What building the model and two steps took, if it could be counted."""
    graph_breaks: tuple[str, ...] = ()
    """Where a compiled model fell back to Python, and why."""
    recompilations: int = 0
    """Graphs compiled after the first step."""
    data_seconds: tuple[float, ...] = ()
    """Seconds that each timed step waited for its micro-batches."""
    counted: Tally = Tally()
    traced: Tally = Tally()
    traced_over_timed: float | None = None
    micro_batches: int = 1
    peak_flops: float | None = None
    """The device's dense peak, if it has a datasheet."""
    target: str = ""
    about: str = ""
    source_digest: str = ""
    """Of the file that holds the recipe."""

    @property
    def tally(self) -> Tally:
        """All measurements of one steady step: memory, FLOPs, tokens, and the mean seconds by phase."""
        seen = self.allocated_peak_bytes
        allocated = Tally() if seen is None else Tally((Account("allocated/peak", seen, "bytes"),))
        return self.steady.tally + self.clock + allocated

    @property
    def mean_step_seconds(self) -> float:
        """Of the timed steps."""
        return fmean(self.step_seconds)

    @property
    def waiting(self) -> float:
        """The share of a step spent waiting for data."""
        return sum(self.data_seconds) / sum(self.step_seconds) if self.data_seconds else 0.0

    @property
    def model_flops(self) -> float:
        """The FLOPs of one step without recomputation."""
        return self.steady.tally.total("flops") - self.steady.tally.total("flops/recompute")

    @property
    def mfu(self) -> float | None:
        """Model FLOPs / seconds / dense peak; None for a device without a datasheet."""
        return None if self.peak_flops is None else self.model_flops / self.mean_step_seconds / self.peak_flops


def write_profile(folder: Path, profile: Profile) -> None:
    """Writes a profile to a run directory."""
    make_folder(folder)
    write_whole(folder / FILE, to_json(profile) + "\n")


def read_profile(folder: Path) -> Profile | None:
    """The profile in a run directory, if there is one."""
    file = folder / FILE
    return read_record(Profile, file) if file.exists() else None
