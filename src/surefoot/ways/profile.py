"""profile: measures a few real steps of a recipe with the same meters as the plan."""

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from surefoot.meters.clock import ClockMeter
from surefoot.meters.kineto import read_trace, traced, write_named
from surefoot.meters.syncs import SyncsMeter
from surefoot.planning.mfu import peak_flops
from surefoot.randomness import kept
from surefoot.recipe.load import source_of
from surefoot.recipe.recipe import Recipe
from surefoot.records.comparison import Comparison
from surefoot.records.profile import Profile
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage
from surefoot.step import Step
from surefoot.techniques.compile import graph_breaks
from surefoot.techniques.recompute import blocks_of
from surefoot.training.resume import source_digest
from surefoot.world.world import World, graphs_compiled

TRACED_STEPS = 2


def profile(recipe: Recipe, *, timed_steps: int = 5, trace: str | None = None) -> Profile:
    """Runs three steps with all meters, one with torch's own allocator, `timed_steps` with only a clock, two traced.

    They run one after the other, so that no measurement disturbs another. A compiled step has no operators to meter, so
    the meters see the step without compile; the allocator, the clock and the trace see it compiled. `trace` names a
    file for the trace, which Perfetto and Chrome can read.
    """
    world = World()
    data = _Data(recipe, world)
    breaks: tuple[str, ...] = ()
    with kept(), world, tempfile.TemporaryDirectory() as folder:
        with _counted_allocator(world) as counted:
            step, (first, steady), beside = _booked(replace(recipe, compile="off"), world, data)
            if recipe.compile != "off":
                del step
                gc.collect()
                step = Step(recipe, world)
                breaks = _breaks(lambda: step.evaluate(data.step()))
                step(data.step())  # compiles
            graphs = graphs_compiled()
            allocated_peak_bytes = counted(lambda: step(data.step()))
        timed = _timed(lambda: step(data.step()), step.model, timed_steps, data)
        file = Path(folder) / "trace.json"  # torch writes the file's name into the JSON without escaping quotes
        phases = traced(lambda: step(data.step()), step.model, file, times=TRACED_STEPS, inside=_told_apart(step))
        recorded = read_trace(file)
        seen = spent(recorded["traceEvents"], phases)
        if trace is not None:
            write_named(recorded, phases, Path(trace))
        parameters = step.parameter_count
    return Profile(
        recipe=recipe.name,
        knobs=dict(recipe.knobs),
        device=str(world.device),
        parameters=parameters,
        first=first,
        steady=steady,
        timed_steps=timed_steps,
        step_seconds=timed.step_seconds,
        clock=timed.clock,
        allocated_peak_bytes=allocated_peak_bytes,
        graph_breaks=breaks,
        recompilations=graphs_compiled() - graphs,
        data_seconds=timed.data_seconds,
        counted=beside,
        traced=_by_the_clock(seen, timed.clock),
        traced_over_timed=seen.total("time") / TRACED_STEPS / timed.clock.total("seconds"),
        micro_batches=recipe.micro_batches(),
        peak_flops=peak_flops(world.device, recipe.precision),
        target=recipe.target,
        source_digest=source_digest(source_of(recipe)),
        about=recipe.about,
    )


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
        self.recipe, self.world, self.batches = recipe, world, batches_of(recipe)
        self.seconds = 0.0

    def step(self) -> Iterator[Any]:
        for _ in range(self.recipe.micro_batches()):
            began = time.perf_counter()
            batch = self.world.take(self.batches)
            self.seconds += time.perf_counter() - began
            yield batch


@dataclass(frozen=True)
class _Timed:
    step_seconds: tuple[float, ...]
    data_seconds: tuple[float, ...]
    clock: Tally


def _booked(recipe: Recipe, world: World, data: _Data) -> tuple[Step, list[Usage], Tally]:
    """Takes three steps with all meters. Returns the step, the usage of the first two, and counts of the second."""
    with Books() as books:
        more = [SyncsMeter(books.phases), MovedMeter(books.phases), BackwardsMeter(books.phases)]
        books.beside(*more)
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        books.ending = step.optimizer
        step(books.seen(data.step()))
        for meter in more:
            meter.accounts()
        step(books.seen(data.step()))
        counted = Tally.of(account for meter in more for account in meter.accounts())
        step(books.seen(data.step()))  # if two steps leave tensors behind, a list grows
    first, steady, third = books.steps
    kept_tensors = Tally(tuple(each for each in third.tally.accounts if each.name.startswith("kept/")))
    return step, [first, steady], counted + kept_tensors


def _breaks(run: Callable[[], object]) -> tuple[str, ...]:
    return tuple(f"{each.where}: {each.reason}" for each in graph_breaks(run))


def _timed(step: Callable[[], object], model: torch.nn.Module, times: int, data: _Data) -> _Timed:
    """The seconds of each step, its wait for data, and the mean by phase."""
    steps, waits = [], []
    with Phases(model) as phases:
        clock = ClockMeter(phases)
        phases.listeners.append(clock)
        for _ in range(times):
            data.seconds = 0.0
            steps.append(_lasting(step))
            waits.append(data.seconds)
        spent_by_phase = clock.accounts()
    mean = Tally.of(Account(each.name, each.amount / times, each.unit) for each in spent_by_phase)
    return _Timed(tuple(steps), tuple(waits), mean)


def _lasting(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
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


@contextmanager
def _counted_allocator(world: World) -> Iterator[Callable[[Callable[[], object]], int | None]]:
    """A function that returns the peak of a call, over everything allocated in this context."""
    if world.device.type == "cuda":
        yield _cuda_peak
        return
    if world.device.type != "cpu" or not allocator.available():
        yield lambda run: None
        return
    gc.collect()  # garbage freed later would be missing from the peak
    allocator.install()
    base = allocator.live_bytes()

    def peak(run: Callable[[], object]) -> int:
        allocator.reset_peak()
        run()
        return allocator.peak_bytes() - base

    try:
        yield peak
    finally:
        allocator.uninstall()


def _cuda_peak(run: Callable[[], object]) -> int:
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated()
