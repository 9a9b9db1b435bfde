"""The plan: the memory, FLOPs and time of a recipe's step, computed without running it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from surefoot.plain_files import make_folder, write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.shown import Shown
from surefoot.records.step_time import StepTime
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage

FILE = "plan.json"
"""Where a run directory keeps its plan."""
LEFT_OUT = "no workspace inside"
"""How an assumption begins that makes a plan too low."""
STEPS_DIFFER = "steps may differ: "
"""How an assumption begins that says that one step does not stand for all others."""
WITHOUT = "planned without "
"""How an assumption begins that takes a whole part of the model away."""
NO_RESUME = "a resume is not planned: "
"""How an assumption begins that says that a new model does not take the state of a trained one."""


@dataclass(frozen=True)
class Fit:
    """Whether a step fits a device: the allocator's reserved bytes plus the CUDA context, against the device's memory.

    The allocator is torch's default one with classic segments, unless only expandable segments fit.
    """

    device: str
    memory_bytes: int
    context_bytes: int
    allocator: str
    total_bytes: int
    fits: bool

    @classmethod
    def of(cls, device: str, *, memory_bytes: int, context_bytes: int, reserved_bytes: dict[str, int]) -> Fit:
        """The fit with the first allocator that fits, or with the default if none does."""
        totals = {name: reserved + context_bytes for name, reserved in reserved_bytes.items()}
        name = next((each for each, total in totals.items() if total <= memory_bytes), next(iter(totals)))
        return cls(device, memory_bytes, context_bytes, name, totals[name], totals[name] <= memory_bytes)


@dataclass(frozen=True)
class HostFit:
    """What the ranks of a node keep in the memory of their host, against its size: 0 if that is not known."""

    rank_bytes: int
    ranks: int
    memory_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.rank_bytes * self.ranks

    @property
    def fits(self) -> bool:
        return not self.memory_bytes or self.total_bytes <= self.memory_bytes


@dataclass(frozen=True)
class RunCost:
    """The cost of all steps of a run on a cluster. An unknown amount is None.

    `seconds` includes everything: steps, evaluations, saves, failures. `goodput` is the share of it spent on steps that
    count. `save_interval_seconds` is the best interval between checkpoints for this rate of failures.
    """

    steps: int
    tokens: int
    devices: int
    step_seconds: float
    evaluation_seconds: float
    save_seconds: float
    seconds: float
    goodput: float
    failures: float
    save_interval_seconds: float | None
    device_hours: float
    dollars: float | None
    dollars_per_hour: float | None
    kilowatt_hours: float | None
    assumptions: tuple[str, ...] = ()
    low: float = 1.0
    """The shortest that four of five such runs take, as a share of `seconds`; so are their dollars."""
    high: float = 1.0

    @property
    def days(self) -> float:
        return self.seconds / 86400


@dataclass(frozen=True)
class LoaderPace:
    """How many samples a second the recipe's data gives on this machine, in one process."""

    samples_per_second: float
    samples: int
    """Those that were read to find out."""
    parallel: bool
    """Whether `workers` can read them. Streams and sources that make whole batches depend on their number."""


@dataclass(frozen=True)
class Plan(Shown):
    """Two symbolic steps of a recipe: the first, in which the optimizer makes its state, and a steady one.

    If later steps differ, the steady one is the highest of those that were planned: see `steps_differ`.

    Around them: building the model and optimizer (`init`), an evaluation of one step's batches (empty if the recipe
    has no `evaluation`), and building both again with a saved state in memory (`resume`). `checkpoint_bytes` is the
    size of a checkpoint: parameters, buffers and optimizer state. `state_bytes` is this rank's part of it, which
    staging copies into host memory.
    `flops_per_token` has this plan's count without recomputation, and the results of other projects' formulas.

    `reserved_bytes` is what a model of torch's caching allocator would reserve on a GPU for the same tensors, with
    classic and with expandable segments; `allocated_bytes` is the peak of its blocks. If the plan is for a GPU, `fit`
    says whether it fits and `time` how long a step takes. If the number of steps is known, `cost` is that of the run.

    `blocks` says which few blocks were run to stand for all, or why all were run. It is empty if no block repeats
    often.
    """

    recipe: str
    about: str
    knobs: dict[str, str | int | float | bool | None]
    parameters: int
    tokens_per_step: int
    micro_batches: int
    steps: int | None
    first: Usage = Usage()
    steady: Usage = Usage()
    init: Usage = Usage()
    evaluate: Usage = Usage()
    resume: Usage = Usage()
    state_bytes: int = 0
    checkpoint_bytes: int = 0
    allocated_bytes: dict[str, int] = field(default_factory=dict)
    reserved_bytes: dict[str, int] = field(default_factory=dict)
    fit: Fit | None = None
    host: HostFit | None = None
    """What waits in host memory, if that is apart from the device's."""
    time: StepTime | None = None
    cost: RunCost | None = None
    flops_per_token: dict[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = field(default=())
    choices: tuple[str, ...] = ()
    """What surefoot chose for this model, and why: the recomputed blocks, the optimizer's groups."""
    blocks: str = ""
    compiled_bytes: tuple[int, int] | None = None
    """Of a step that will be compiled: between which bytes its memory falls in four of five cases."""
    unit: str = "token"
    """What `tokens_per_step` counts: token or sample."""
    ranks: int = 1
    samples_per_step: int = 0
    """What the loader of one rank must give for a step. 0 if it is unknown."""
    loader: LoaderPace | None = field(default=None, compare=False)
    """What it gives on this machine, if that was measured."""
    script: tuple[str, ...] = ()
    """Of a script that was planned: what was looked at, and what was not. Empty for a recipe."""
    layout: str = ""
    """How the ranks are arranged. Parameters, tokens and the checkpoint are of all ranks, all else is of one rank."""

    @property
    def live_bytes(self) -> int:
        """The highest peak among building the model, the first step and a steady step."""
        return max(usage.peak.peak_bytes for usage in (self.init, self.first, self.steady))

    @property
    def needed_bytes(self) -> dict[str, int]:
        """What each allocator must be able to reserve; of a compiled step, the upper end of its interval."""
        return needed_bytes(self.reserved_bytes, self.compiled_bytes)

    @property
    def needed_samples_per_second(self) -> float | None:
        """What the loader of one rank must give so that no step waits for it. None if no time is predicted."""
        return self.samples_per_step / self.time.seconds if self.time and self.samples_per_step else None

    @property
    def left_out(self) -> tuple[str, ...]:
        """The assumptions that make the plan too low."""
        return tuple(note for note in self.assumptions if note.startswith(LEFT_OUT))

    @property
    def without(self) -> tuple[str, ...]:
        """The assumptions that take whole parts of the model away."""
        return tuple(note for note in self.assumptions if note.startswith(WITHOUT))

    @property
    def no_resume(self) -> tuple[str, ...]:
        """The assumption that says that a run cannot be continued from its checkpoints."""
        return tuple(note for note in self.assumptions if note.startswith(NO_RESUME))

    @property
    def steps_differ(self) -> tuple[str, ...]:
        """The assumptions that say that one step does not stand for all others."""
        return tuple(note for note in self.assumptions if note.startswith(STEPS_DIFFER))

    @property
    def tally(self) -> Tally:
        """All predictions for one steady step. The booked peak predicts the allocator's peak."""
        return self.steady.tally + Tally((Account("allocated/peak", self.steady.peak.peak_bytes, "bytes"),))


def needed_bytes(reserved_bytes: dict[str, int], compiled_bytes: tuple[int, int] | None) -> dict[str, int]:
    """What each allocator must be able to reserve. `compiled_bytes` is for the first of them, torch's default."""
    if compiled_bytes is None or not reserved_bytes:
        return reserved_bytes
    written = next(iter(reserved_bytes.values()))
    share = max(1.0, compiled_bytes[1] / written) if written else 1.0
    return {name: round(size * share) for name, size in reserved_bytes.items()}


def write_plan(folder: Path, plan: Plan) -> None:
    """Writes a plan to a run directory."""
    make_folder(folder)
    write_whole(folder / FILE, to_json(plan) + "\n")


def read_plan(folder: Path) -> Plan | None:
    """The plan in a run directory, if there is one."""
    file = folder / FILE
    return read_record(Plan, file) if file.exists() else None
