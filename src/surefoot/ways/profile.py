"""profile: measures a few real steps of a recipe with the same meters as the plan."""

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from surefoot.costs.compare import compared
from surefoot.costs.trace_time import OUTSIDE, spent
from surefoot.data.batches import batches_of
from surefoot.events.phases import Phases
from surefoot.meters import allocator
from surefoot.meters.backwards import BackwardsMeter
from surefoot.meters.books import Books
from surefoot.meters.bytes_moved import MovedMeter
from surefoot.meters.clock import ClockMeter, DeviceClockMeter
from surefoot.meters.kineto import read_trace, traced, write_named
from surefoot.meters.syncs import SyncsMeter
from surefoot.planning.fake_step import take
from surefoot.planning.mfu import peak_flops
from surefoot.randomness import kept
from surefoot.recipe.load import source_of
from surefoot.recipe.recipe import Recipe
from surefoot.records.profile import Comparison, DeviceMemory, Profile
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage
from surefoot.step import Step
from surefoot.techniques.compile import graph_breaks
from surefoot.techniques.deterministic import applied, as_asked
from surefoot.techniques.mesh import layout_of, with_global_batch
from surefoot.techniques.recompute import blocks_of
from surefoot.torch_inside.compiled import graphs_compiled
from surefoot.training.resume import source_digest
from surefoot.world import cuda
from surefoot.world.world import RealWorld, World

TRACED_STEPS = 2
FEWEST_TIMED = 3
"""Steps that are timed even if the time is up."""


@as_asked
def profile(recipe: Recipe, *, timed_steps: int = 5, trace: str | None = None) -> Profile:
    """Takes two steps with torch's own allocator, `timed_steps` with only a clock, two traced, three with all meters.

    They run one after the other, so that no measurement disturbs another. A compiled step has no operators to meter, so
    the meters see the step without compile; the allocator, the clock and the trace see it compiled. `trace` names a
    file for the trace, which Perfetto and Chrome can read. Under torchrun, every rank takes part.
    """
    with RealWorld():
        return booked(clocked(recipe, timed_steps=timed_steps, trace=trace, traced_steps=TRACED_STEPS), recipe)


@as_asked
def clocked(
    recipe: Recipe,
    *,
    timed_steps: int,
    most_seconds: float | None = None,
    traced_steps: int = 0,
    trace: str | None = None,
) -> Profile:
    """The seconds of a step, and the memory that torch's own allocator counts. No meter sees an operator.

    After `most_seconds` no further step is timed.
    """
    world = RealWorld()
    recipe = with_global_batch(recipe, layout_of(recipe, rank=world.rank, ranks=world.ranks))
    data = _Data(recipe, world)
    breaks: tuple[str, ...] = ()
    with kept(), world, tempfile.TemporaryDirectory() as folder:
        with _counting(world.device) as memory:
            step = Step(recipe, world)
            if recipe.compile != "off":
                breaks = _breaks(lambda: step.evaluate(data.step()))
            step(data.step())  # compiles, if anything does
            graphs = graphs_compiled()
            steady, whole = _steady_peak(memory, lambda: step(data.step()), times=1 if world.ranks == 1 else 3)
        timed = _timed(lambda: step(data.step()), step.model, timed_steps, most_seconds, data)
        seen, slower = Tally(), None
        if traced_steps:
            file = Path(folder) / "trace.json"  # torch writes the file's name into the JSON without escaping quotes
            phases = traced(lambda: step(data.step()), step.model, file, times=traced_steps, inside=_told_apart(step))
            recorded = read_trace(file)
            seen = spent(recorded["traceEvents"], phases)
            slower = seen.total("time") / traced_steps / timed.clock.total("seconds")
            if trace is not None and world.rank == 0:
                write_named(recorded, phases, Path(trace))
        parameters = step.parameter_count
    return Profile(
        recipe=recipe.name,
        knobs=dict(recipe.knobs),
        device=str(world.device),
        parameters=parameters,
        first=Usage(),
        steady=Usage(),
        timed_steps=len(timed.step_seconds),
        step_seconds=timed.step_seconds,
        clock=timed.clock,
        ranks=world.ranks,
        allocated_peak_bytes=steady,
        device_memory=whole,
        graph_breaks=breaks,
        recompilations=graphs_compiled() - graphs,
        data_seconds=timed.data_seconds,
        traced=_by_the_clock(seen, timed.clock) if traced_steps else Tally(),
        traced_over_timed=slower,
        micro_batches=step.micro_batches,
        peak_flops=peak_flops(world.device, recipe.precision),
        target=recipe.target,
        source_digest=source_digest(source_of(recipe)),
        about=recipe.about,
    )


def booked(profile: Profile, recipe: Recipe) -> Profile:
    """A profile with what all meters count in three new steps: the first two, and what the third finds left behind."""
    world = RealWorld()
    recipe = with_global_batch(recipe, layout_of(recipe, rank=world.rank, ranks=world.ranks))
    gc.collect()
    with applied(recipe), kept(), world:
        (first, steady), counted = _booked(replace(recipe, compile="off"), world, _Data(recipe, world))
    return replace(profile, first=first, steady=steady, counted=counted)


def compare(before: Recipe, after: Recipe, *, rounds: int = 15) -> Comparison:
    """Times one step of each in turns, after one warm-up step of each; the side that goes first alternates."""
    world = World()
    with kept(), world:
        sides = []
        for recipe in (before, after):
            data, step = _Data(recipe, world), Step(recipe, world)
            step(data.step())
            sides.append((step, data))
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                step, data = sides[side]
                seconds[side].append(_lasting(lambda step=step, data=data: step(data.step())))  # type: ignore[misc]
    return compared(_named(before, after), _named(after, before), *seconds)


class _Data:
    """The micro-batches of one step after the other, and the seconds of waiting for them."""

    def __init__(self, recipe: Recipe, world: World) -> None:
        layout = layout_of(recipe, rank=world.rank, ranks=world.ranks)
        self.world, self.micro_batches = world, recipe.micro_batches(layout.data_ranks)
        self.batches = batches_of(recipe, rank=layout.data_rank, ranks=layout.data_ranks)
        self.seconds = 0.0

    def step(self) -> Iterator[Any]:
        for _ in range(self.micro_batches):
            began = time.perf_counter()
            batch = self.world.take(self.batches)
            self.seconds += time.perf_counter() - began
            yield batch


@dataclass(frozen=True)
class _Timed:
    step_seconds: tuple[float, ...]
    data_seconds: tuple[float, ...]
    clock: Tally


def _booked(recipe: Recipe, world: World, data: _Data) -> tuple[list[Usage], Tally]:
    """Takes three steps with all meters. Returns the usage of the first two, and counts of the second."""
    with Books(host_apart=world.device.type != "cpu") as books:
        more = [SyncsMeter(books.phases), MovedMeter(books.phases), BackwardsMeter(books.phases)]
        books.beside(*more)
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        books.ending = step.optimizer
        books.memory.know_averages({} if step.ema is None else step.ema.tensors)
        books.traffic.know(step.mesh)
        _take(step, books, data)
        for meter in more:
            meter.accounts()
        _take(step, books, data)
        counted = Tally.of(account for meter in more for account in meter.accounts())
        _take(step, books, data)  # if two steps leave tensors behind, a list grows
    first, steady, third = books.steps
    kept_tensors = Tally(tuple(each for each in third.tally.accounts if each.name.startswith("kept/")))
    return [first, steady], counted + kept_tensors


def _take(step: Step, books: Books, data: _Data) -> None:
    take(step, books, books.seen(data.step()))


def _breaks(run: Callable[[], object]) -> tuple[str, ...]:
    return tuple(f"{each.where}: {each.reason}" for each in graph_breaks(run))


def _timed(
    step: Callable[[], object], model: torch.nn.Module, times: int, most_seconds: float | None, data: _Data
) -> _Timed:
    """The seconds of each step, its wait for data, and the mean by phase."""
    steps: list[float] = []
    waits: list[float] = []
    with Phases(model) as phases:
        clock = _clock(phases, data.world.device)
        phases.listeners.append(clock)
        while len(steps) < times and not _is_late(steps, most_seconds, data.world):
            data.seconds = 0.0
            steps.append(_lasting(step))
            waits.append(data.seconds)
        spent_by_phase = clock.accounts()
    mean = Tally.of(Account(each.name, each.amount / len(steps), each.unit) for each in spent_by_phase)
    return _Timed(tuple(steps), tuple(waits), mean)


def _clock(phases: Phases, device: torch.device) -> ClockMeter | DeviceClockMeter:
    """The clock of a device. A CUDA GPU works behind the host, which could only tell when work was given to it."""
    if device.type != "cuda":
        return ClockMeter(phases)
    return DeviceClockMeter(phases, mark=cuda.mark, seconds_between=cuda.seconds_between)


def _is_late(steps: list[float], most_seconds: float | None, world: World) -> bool:
    """Whether enough steps were timed. All ranks decide the same: the slowest one counts."""
    if most_seconds is None or len(steps) < FEWEST_TIMED:
        return False
    (spent_ms,) = world.most([int(sum(steps) * 1000)])
    return spent_ms > most_seconds * 1000


def _lasting(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    cuda.synchronize()
    return time.perf_counter() - began


def _told_apart(step: Step) -> dict[torch.nn.Module, str]:
    """The modules that a trace can tell apart. A compiled module appears as one, whatever is inside it."""
    if step.recipe.compile == "whole":
        inside: tuple[str, ...] = ("",)
    elif step.recipe.compile == "blocks":
        inside = tuple(f"{name}." for name, _ in blocks_of(step.model))
    else:
        inside = ()
    names = {module: name for name, module in step.model.named_modules() if not (name and name.startswith(inside))}
    return names


def _by_the_clock(seen: Tally, clock: Tally) -> Tally:
    """The trace, scaled to the seconds of the steps that were not traced. A phase missing from it gets no module."""
    paced = []
    for phase, seconds in clock.under("seconds").items():
        total = seen.total(f"time/{phase}")
        below = [each for each in seen.accounts if each.name.startswith(f"time/{phase}/")]
        paced += [Account(each.name, each.amount / total * seconds, "seconds") for each in below]
        if not below:
            paced.append(Account(f"time/{phase}/{OUTSIDE}/python", seconds, "seconds"))
    return Tally.of(paced)


def _named(recipe: Recipe, other: Recipe) -> str:
    """A recipe's name with the knobs in which it differs from the other."""
    own = {**recipe.knobs, "compile": recipe.compile, "precision": recipe.precision, "recompute": recipe.recompute}
    others = {**other.knobs, "compile": other.compile, "precision": other.precision, "recompute": other.recompute}
    differing = [f"{name}={value}" for name, value in own.items() if others.get(name) != value]
    return " ".join([recipe.name, *differing])


class _Memory:
    """Torch's own count of what it allocated since this was made. Nothing is known of most devices."""

    def reset(self) -> None:
        """Counts the peak from now on."""

    def peak(self) -> int | None:
        """The most bytes that tensors asked for since the last reset."""
        return None

    def whole(self) -> DeviceMemory | None:
        """Everything that is known since the beginning."""
        return None


class _CpuMemory(_Memory):
    """Needs the counting allocator to be installed."""

    def __init__(self) -> None:
        self._base = allocator.live_bytes()
        self._highest = 0
        allocator.reset_peak()

    def reset(self) -> None:
        self._highest = max(self._highest, self.peak())
        allocator.reset_peak()

    def peak(self) -> int:
        return allocator.peak_bytes() - self._base

    def whole(self) -> DeviceMemory:
        return DeviceMemory(requested_bytes=max(self._highest, self.peak()))


class _CudaMemory(_Memory):
    """Reads the statistics of the caching allocator, and what the device has left."""

    def __init__(self) -> None:
        cuda.synchronize()  # makes the context
        self._before, self._total = cuda.used_and_total_bytes()
        self._highest = cuda.Peaks(0, 0, 0, 0)
        cuda.reset_peaks()

    def reset(self) -> None:
        self._highest = self._all()
        cuda.reset_peaks()

    def peak(self) -> int:
        return cuda.peaks().requested

    def whole(self) -> DeviceMemory:
        found = self._all()
        used, _ = cuda.used_and_total_bytes()
        return DeviceMemory(
            requested_bytes=found.requested,
            allocated_bytes=found.allocated,
            reserved_bytes=found.reserved,
            used_bytes=used,
            used_before_bytes=self._before,
            total_bytes=self._total,
            retries=found.retries,
            segments="expandable" if cuda.has_expandable_segments() else "classic",
        )

    def _all(self) -> cuda.Peaks:
        return cuda.Peaks(*map(max, zip(astuple(self._highest), astuple(cuda.peaks()), strict=True)))


@contextmanager
def _counting(device: torch.device) -> Iterator[_Memory]:
    """Counts what is allocated on a device in this context."""
    if device.type == "cuda":
        yield _CudaMemory()
        return
    if device.type != "cpu" or not allocator.available():
        yield _Memory()
        return
    gc.collect()  # garbage freed later would be missing from the peak
    allocator.install()
    try:
        yield _CpuMemory()
    finally:
        allocator.uninstall()


def _steady_peak(memory: _Memory, step: Callable[[], object], *, times: int) -> tuple[int | None, DeviceMemory | None]:
    """The least peak of a few steady steps, and all that was taken from the beginning to the first of them.

    One is enough in one process. Of several ranks, a thread of gloo can let go of a buffer too late.
    """
    found: list[int] = []
    whole = None
    for _ in range(times):
        memory.reset()
        step()
        cuda.synchronize()
        whole = whole or memory.whole()
        if (peak := memory.peak()) is not None:
            found.append(peak)
    return min(found, default=None), whole
