"""Traces a model with many repeated blocks from runs with 3, 4 and 5 of them.

The model is built with all its blocks. Sharing it among ranks and taking steps is run on copies with a few blocks, and
written to journals. The first two journals show what one more block adds. They must predict the third, entry by entry
(`costs/unroll.py`). `block_proof.py` verifies that later blocks behave, and are treated, like the first ones. The
journal of all blocks is then posted to the same books that a full trace keeps. If the proof fails, the model is
refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import nn

from surefoot.costs import unroll
from surefoot.costs.unroll import Irregular, unrolled
from surefoot.meters.books import Books
from surefoot.meters.journal import Entry, post
from surefoot.meters.memory_book import Booking
from surefoot.planning.block_proof import part_entries, plan_entries, prove_forward, whole_step
from surefoot.planning.fake_step import (
    Trace,
    Tracing,
    know,
    load_state,
    of_built,
    saved_state,
    take,
    whole_bytes,
)
from surefoot.planning.idle_parts import idle_parts
from surefoot.planning.later_steps import Later, Looks, Watch
from surefoot.planning.repeated_blocks import Repeats
from surefoot.planning.short_models import FEW, Copies
from surefoot.records.usage import Usage
from surefoot.step import Step

FEWEST = 20
"""From this number of blocks on it is faster than a full trace: the short runs and one full forward take time too."""


@dataclasses.dataclass(frozen=True)
class ShortRun:
    """The results of a run with a few blocks: its journal, its assumptions, and the calls that were too large."""

    step: Step
    entries: list[Entry]
    parts: list[Entry]
    assumed: dict[str, int]
    too_large: set[Any]
    checkpoint_bytes: int
    later: Later


def run_few(tracing: Tracing, repeats: Repeats) -> Trace:
    """The result of `tracing.traced()`, computed from runs with a few blocks of `repeats`."""
    if tracing.recipe.recompute.startswith("budget"):
        raise Irregular("the recompute budget is shared among all blocks")
    if tracing.layout.replicates:
        raise Irregular("the buckets of ddp hold gradients of several blocks")
    if tracing.recipe.freeze is not None and tracing.layout.tp > 1:
        raise Irregular("freeze names parameters of blocks that a short model lacks, and tp makes some of them anew")
    assumed, too_large = dict(tracing.world.assumptions), set(tracing.kernels.too_large)
    copies = Copies(tracing.model, repeats, tracing.books, tracing.kernels)
    runs = _runs(tracing, copies)
    step = whole_step(copies, runs[-1].step, [run.parts for run in runs])
    step.recipe = dataclasses.replace(step.recipe, freeze=tracing.recipe.freeze, float32=tracing.recipe.float32)
    made = _posted(tracing, copies, step, unrolled([run.entries for run in runs], copies.more))
    made.assumed = _sum(assumed, _unrolled_counts([run.assumed for run in runs], copies.more))
    (made.checkpoint_bytes,) = _unrolled_counts([{"": run.checkpoint_bytes} for run in runs], copies.more).values()
    made.too_large = _even([len(too_large | run.too_large) for run in runs], "kernels too large to try")
    made.unknown = frozenset(tracing.kernels.unknown)
    made.later = dataclasses.replace(runs[-1].later, usages=[made.steady])
    made.blocks = f"{repeats} from runs with {FEW[0]}, {FEW[1]} and {FEW[2]}"
    return made


# ------------------------------------------------------------------------------------------- running few blocks


def _runs(tracing: Tracing, copies: Copies) -> list[ShortRun]:
    """A run for each number of blocks. Some models cannot be copied, or cannot run with fewer blocks."""
    try:
        prove_forward(tracing, copies)
        return [_short_run(tracing, copies, times) for times in FEW]
    except Irregular:
        raise
    except Exception as error:
        raise Irregular(f"with a few blocks: {type(error).__name__}: {error}") from error


def _short_run(tracing: Tracing, copies: Copies, times: int) -> ShortRun:
    """Runs everything after building the model, with `times` blocks."""
    model, books, journal = copies.short(times, work=tracing.work)
    planned, before = plan_entries(copies, tracing.recipe, model), dict(tracing.world.assumptions)
    tracing.kernels.too_large.clear()
    with books:
        step = _shared(tracing, model, books)
        loaded = tracing.loaded(books)
        watch = Watch(step, books, tracing.world.operators, looks=Looks.NOT, places=len(tracing.largest))

        def take_step() -> None:
            take(step, books, next(loaded))

        with idle_parts(step) as idle:
            watch.first_two(take_step, tracing.batches_differed)
        if tracing.world.guesses and idle():
            raise Irregular("a guess at a value left out parts of the model")
        books.close()
        tracing.evaluated(step, loaded, books.close)
        assumed = {note: count - before.get(note, 0) for note, count in tracing.world.assumptions.items()}
        saved = saved_state(step)
        books.close()
        entries, parts = journal.finished(), [*planned, *part_entries(copies, step)]
        load_state(step, saved)
        if any(entry.words[0] == "book" for entry in journal.entries[len(entries) :]):
            raise Irregular("loading a saved state allocates")
        if why := watch.doubts(take_step):
            raise Irregular(f"steps may differ: {why}")
    counts = {note: count for note, count in assumed.items() if count}
    return ShortRun(step, entries, parts, counts, set(tracing.kernels.too_large), whole_bytes(saved), watch.found)


def _shared(tracing: Tracing, model: nn.Module, books: Books) -> Step:
    """Builds a step and registers it with the books. Closes them as often as `Tracing.built` does."""
    # the copies are frozen and have their modules in float32 already
    recipe = dataclasses.replace(of_built(tracing.recipe, model), freeze=None, float32=None)
    step = Step(recipe, tracing.world)
    if step.optimizer.state:
        raise Irregular("the optimizer creates its state when it is created")  # loading a state replaces it
    books.close()
    books.close()
    know(books, step)
    return step


# ------------------------------------------------------------------------------------------- keeping the books


def _posted(tracing: Tracing, copies: Copies, step: Step, entries: Sequence[unroll.Entry]) -> Trace:
    """Posts the journal of all blocks to the books."""
    books = tracing.books
    closings = post(entries, books, copies.bookings)

    def close() -> Usage:
        next(closings)
        return books.close()

    made = tracing.built(step, close)
    built = books.memory.book.live()
    made.first, made.steady = close(), close()
    made.attention = books.flops.attention
    close()
    made.allocated_bytes, made.reserved_bytes = tracing.allocated_and_reserved_bytes()
    evaluated = close()
    made.evaluate = evaluated if tracing.recipe.evaluation is not None else Usage()
    there = set(books.memory.book.live())
    close()
    saved = [booking for booking in books.memory.book.live() if booking not in there]
    made.state_bytes = sum(each.size for each in saved)
    with Books(kernels=tracing.kernels) as beside:
        for each in saved:
            beside.memory.book.book(each.size, "inputs", "", "", each.tensor)
        made.resume = _resumed(beside, built) if made.host_bytes else tracing.resumed(beside, None)
    return made


def _resumed(beside: Books, built: list[Booking]) -> Usage:
    """Books a resume of a step that is built on the host: the memory on the device is known."""
    for each in built:
        beside.memory.book.book(each.size, "temporary", "", each.operator, each.tensor)
    beside.close()
    return beside.close()


def _unrolled_counts(counts: Sequence[dict[str, int]], more: int) -> dict[str, int]:
    """Counts for all blocks. Raises if they do not grow evenly with every block."""
    grown = {}
    for note in {note: None for each in reversed(counts) for note in each}:
        first, second, third = (each.get(note, 0) for each in counts)
        if third - second != second - first:
            raise Irregular(f"the count of this assumption does not grow evenly: {note}")
        grown[note] = third + more * (third - second)
    return grown


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {note: one.get(note, 0) + other.get(note, 0) for note in {**one, **other}}


def _even(counts: list[int], what: str) -> int:
    if len(set(counts)) > 1:
        raise Irregular(f"the number of {what} depends on the number of blocks")
    return counts[0]
