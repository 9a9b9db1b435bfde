"""profile: what a few real steps of a recipe take, by the same meters as the plan."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from surefoot.data.batches import batches_of
from surefoot.meters import allocator
from surefoot.meters.books import Books
from surefoot.meters.clock import ClockMeter
from surefoot.phases import Phases
from surefoot.randomness import kept
from surefoot.recipe import Recipe
from surefoot.records.profile import Profile
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage
from surefoot.step import Step
from surefoot.techniques.compile import graph_breaks
from surefoot.world import World


def profile(recipe: Recipe, *, timed_steps: int = 5) -> Profile:
    """Two steps under all meters, one under torch's own allocator, then `timed_steps` under the clock alone.

    One after the other, so that none disturbs the other. A compiled step has no operators to meter: under the meters
    the step runs as it was written, and is compiled for the allocator and the clock.
    """
    world = World()
    batches = batches_of(recipe)

    def loaded() -> Iterator[Any]:
        return (world.take(batches) for _ in range(recipe.micro_batches()))

    breaks: tuple[str, ...] = ()
    with kept(), world:
        with _counted_allocator(world) as counted:
            step, (first, steady) = _booked(replace(recipe, compile="off"), world, loaded)
            if recipe.compile != "off":
                del step
                gc.collect()
                step = Step(recipe, world)
                breaks = _breaks(lambda: step.evaluate(loaded()))
                step(loaded())  # compiles
            allocated_peak_bytes = counted(lambda: step(loaded()))
        step_seconds, spent = _timed(lambda: step(loaded()), step.model, timed_steps)
        parameters = step.parameter_count
    return Profile(
        recipe=recipe.name,
        knobs=dict(recipe.knobs),
        device=str(world.device),
        parameters=parameters,
        first=first,
        steady=steady,
        timed_steps=timed_steps,
        step_seconds=tuple(step_seconds),
        clock=Tally.of(Account(each.name, each.amount / timed_steps, each.unit) for each in spent),
        allocated_peak_bytes=allocated_peak_bytes,
        graph_breaks=breaks,
    )


def _booked(recipe: Recipe, world: World, loaded: Callable[[], Iterator[Any]]) -> tuple[Step, list[Usage]]:
    """A step that was taken twice under all meters, and what it used."""
    with Books() as books:
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        step(books.seen(loaded()))
        step(books.seen(loaded()))
    return step, books.steps


def _breaks(run: Callable[[], object]) -> tuple[str, ...]:
    return tuple(f"{each.where}: {each.reason}" for each in graph_breaks(run))


def _timed(step: Callable[[], object], model: torch.nn.Module, times: int) -> tuple[list[float], list[Account]]:
    """The seconds of each step, and of all of them by phase."""
    step_seconds = []
    with Phases(model) as phases:
        clock = ClockMeter(phases)
        phases.listeners.append(clock)
        for _ in range(times):
            began = time.perf_counter()
            step()
            step_seconds.append(time.perf_counter() - began)
        return step_seconds, clock.accounts()


@contextmanager
def _counted_allocator(world: World) -> Iterator[Callable[[Callable[[], object]], int | None]]:
    """A function that gives the peak of a call, over all that was allocated in this context."""
    if world.device.type != "cpu" or not allocator.available():
        yield lambda run: None
        return
    gc.collect()  # what is freed meanwhile would be missing from the peak
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
