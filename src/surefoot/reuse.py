"""Reuse: a trace of a model with many alike blocks, from runs of the same model with 3, 4 and 5 of them.

The stretches after building are run with a few blocks and written to journals. The first two journals tell what one
block more adds; they must predict the third, entry by entry (`costs/unroll.py`). The journal of all blocks that
follows must begin as a forward of the whole model does, entry by entry: so no block may behave otherwise for being the
60th. It is then posted to the same books that a trace in full keeps. What cannot be proved is refused.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from surefoot.costs.unroll import Irregular, unrolled
from surefoot.meters.books import Books
from surefoot.meters.journal import Entry, Journal, Noted, filled, post
from surefoot.records.usage import Usage
from surefoot.repeats import Repeats
from surefoot.step import Step
from surefoot.trace import Trace, Tracing, know, load_state, saved_state, whole_bytes
from surefoot.trees import plain

FEW = (3, 4, 5)
"""With how many blocks the model is run."""

FEWEST = 20
"""From how many blocks on this is quicker: the runs of a few, and the forward of all, are work too."""


@dataclasses.dataclass(frozen=True)
class ShortRun:
    """What a run with a few blocks left: its journal, how often what was assumed, and the calls not tried."""

    entries: list[Entry]
    assumed: dict[str, int]
    too_large: set[Any]
    checkpoint_bytes: int


def run_few(tracing: Tracing, repeats: Repeats, made: Trace) -> None:
    """Does what `tracing.run(made)` does, with the blocks of `repeats` run a few times for all."""
    _refuse_uneven_groups(made.step, repeats)
    if tracing.recipe.recompute.startswith("budget"):
        raise Irregular("a budget for recomputation is shared out among all of them")
    if made.step.layout.replicates:
        raise Irregular("the buckets of ddp hold gradients of several of them")
    reusing = Reusing(tracing, repeats, made)
    runs = [reusing.short_run(times) for times in FEW]
    more = repeats.times - FEW[-1]
    entries = unrolled([run.entries for run in runs], more)
    for at, (found, expected) in enumerate(zip(reusing.whole_forward(), entries, strict=False)):
        if tuple(found) != expected:
            raise Irregular(f"a forward of all of them goes otherwise from entry {at} on: {found.words}")
    made.assumed = _sum(reusing.assumed, _unrolled_counts([run.assumed for run in runs], more))
    reusing.post(entries)
    (made.checkpoint_bytes,) = _unrolled_counts([{"": run.checkpoint_bytes} for run in runs], more).values()
    made.too_large = _even([len(reusing.too_large | run.too_large) for run in runs], "kernels too large to try")
    made.unknown = frozenset(tracing.kernels.unknown)
    made.blocks = f"{repeats} from runs with {FEW[0]}, {FEW[1]} and {FEW[2]}"


class Reusing:
    """A built step whose model can be shortened, and what its meter had booked when it was built."""

    def __init__(self, tracing: Tracing, repeats: Repeats, made: Trace) -> None:
        self.tracing, self.repeats, self.made = tracing, repeats, made
        self.assumed = dict(tracing.world.assumptions)
        self.too_large = set(tracing.kernels.too_large)
        self.storages: dict[tuple[str, ...], Any] = {}
        """The bookings of what was built, by the names that journals have for them."""
        self._whole = Built(made.step, tracing.books, repeats)
        for noted, booking in self._whole.booked:
            self.storages[noted.words[0], filled(noted.words[1], noted.numbers)] = booking

    def short_run(self, times: int) -> ShortRun:
        """The stretches after building, with so many blocks. A model may refuse to run with fewer than it has."""
        try:
            return self._short_run(times)
        except Irregular:
            raise
        except Exception as error:
            raise Irregular(f"with {times} of them: {type(error).__name__}: {error}") from error

    def _short_run(self, times: int) -> ShortRun:
        world, kernels, journal = self.tracing.world, self.tracing.kernels, Journal(self.repeats.split)
        before = dict(world.assumptions)
        kernels.too_large.clear()
        named = self._books(journal, self._whole, work=self.tracing.work)  # by the names of the whole model
        with self._short(times) as built:
            step, many = built.step, self.tracing.world.ranks > 1
            books = self._books(journal, built, work=self.tracing.work) if many else named
            loaded = self.tracing.loaded(books, step)
            with books:
                step(next(loaded))
                step(next(loaded))
                books.close()
                assumed = {note: count - before.get(note, 0) for note, count in world.assumptions.items()}
                step.evaluate(next(loaded))
                books.close()
                saved = saved_state(step)
                books.close()
            if times == FEW[-1]:
                self._refuse_costly_load(saved, times)
        counts = {note: count for note, count in assumed.items() if count}
        return ShortRun(journal.finished(), counts, set(kernels.too_large), whole_bytes(saved))

    def whole_forward(self) -> list[Entry]:
        """The journal of the first forward of the whole model, and its loss."""
        journal = Journal(self.repeats.split)
        with self._books(journal, self._whole, work=self.tracing.work) as books:
            batches = next(self.tracing.loaded(books, self.made.step))
            batch = next(batches)  # held until the end, as a step holds it
            kept = self.made.step.loss_of(0, batch)
            entries = journal.finished()
        del kept
        return entries

    def post(self, entries: list[Entry]) -> None:
        """Keeps the books of all blocks."""
        made, books = self.made, self.tracing.books
        closings = post(entries, books, self.storages)

        def close() -> Usage:
            next(closings)
            return books.close()

        made.first, made.steady = close(), close()
        made.attention = books.flops.attention
        close()
        made.allocated_bytes, made.reserved_bytes = self.tracing.allocated_and_reserved_bytes()
        made.evaluate = close()
        there = set(books.memory.book.live())
        close()
        copies = [booking for booking in books.memory.book.live() if booking not in there]
        made.state_bytes = sum(each.size for each in copies)
        with Books(kernels=self.tracing.kernels) as beside:
            for each in copies:
                beside.memory.book.book(each.size, "inputs", "", "", each.tensor)
            made.resume = self._resumed(beside)

    def _resumed(self, beside: Books) -> Usage:
        """The step built anew beside what is booked; where the host builds it, what comes to the device is known."""
        if not self.made.host_bytes:
            return self.tracing.resumed(beside, None)
        for _, booking in self._whole.booked:
            beside.memory.book.book(booking.size, "temporary", "", booking.operator, booking.tensor)
        beside.close()
        return beside.close()

    def _books(self, journal: Journal, built: Built, *, work: bool = False) -> Books:
        """Books that know a model and what was built of it, and write to a journal."""
        books = Books(kernels=self.tracing.kernels, journal=journal, work=work)
        know(books, built.step)
        books.memory.owners.update(built.owners)
        for storage, noted in built.noted:
            books.memory.follow(storage, noted)
        return books

    @contextmanager
    def _short(self, times: int) -> Iterator[Built]:
        """A step of the model with so many blocks: the same modules, or where ranks share it, a new and smaller one."""
        with nullcontext() if self.tracing.world.ranks > 1 else self.repeats.shortened(times):
            yield self._another(times)

    def _another(self, times: int) -> Built:
        """A step of the model that is short already, or of a new one."""
        return self._built_short(times) if self.tracing.world.ranks > 1 else self._whole.of(self._short_step())

    def _built_short(self, times: int) -> Built:
        """Sharding knows all blocks of a model, so they are left out before it."""
        recipe, template = self.tracing.recipe, self._template

        def model() -> torch.nn.Module:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
                made = copy.deepcopy(template)
            self.repeats.within(made, FEW[-1]).shorten(times)
            return made

        with Books(kernels=self.tracing.kernels) as books:
            step = Step(dataclasses.replace(recipe, model=model), self.tracing.world)
            books.phases.find(step.model)
        return Built(step, books, self.repeats)

    @functools.cached_property
    def _template(self) -> torch.nn.Module:
        """The model before sharding, with as many blocks as a short run has at most."""
        made = self.tracing.recipe.model()
        self.repeats.within(made, self.repeats.times).shorten(FEW[-1])
        return made

    def _short_step(self) -> Step:
        """A step of the shortened model, which recomputes already where it is to.

        What its optimizer allocates when it is made belongs to building.
        """
        recipe = dataclasses.replace(self.tracing.recipe, model=lambda: self.made.step.model, recompute="none")
        journal = Journal(self.repeats.split)
        with self._books(journal, self._whole):
            step = Step(recipe, self.tracing.world)
        if journal.entries:
            raise Irregular("making the optimizer allocates")
        return step

    def _refuse_costly_load(self, saved: dict[str, Any], times: int) -> None:
        journal, built = Journal(self.repeats.split), self._another(times)
        with self._books(journal, built) as books:
            books.memory.see(saved)
            there = len(journal.entries)
            load_state(built.step, saved)
            if len(journal.entries) > there:
                raise Irregular("loading a saved state allocates")


@dataclasses.dataclass
class Built:
    """A step, and what its books had booked when it was built, by the names that journals have for it."""

    step: Step
    books: dataclasses.InitVar[Books]
    repeats: dataclasses.InitVar[Repeats]
    noted: list[tuple[torch.UntypedStorage, Noted]] = dataclasses.field(default_factory=list)
    booked: list[tuple[Noted, Any]] = dataclasses.field(default_factory=list)
    owners: dict[torch.Tensor, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self, books: Books, repeats: Repeats) -> None:
        names, unnamed = _storage_names(self.step.model), itertools.count()
        for storage, booking in books.memory.followed():
            name = names.get(id(storage))
            kind = "built" if name is None else "model"
            pattern, numbers = ("{}", (next(unnamed),)) if name is None else repeats.split(name)
            self.noted.append((storage, Noted((kind, pattern), numbers)))
            self.booked.append((self.noted[-1][1], booking))
        self.owners.update(books.memory.owners)
        books.memory.let_go()

    def of(self, step: Step) -> Built:
        """The same storages, used by another step."""
        other = copy.copy(self)
        other.step = step
        return other


def _storage_names(model: torch.nn.Module) -> dict[int, str]:
    """The first name of every parameter and buffer, by the identity of its storage."""
    names: dict[int, str] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        for part in plain(tensor):
            names.setdefault(id(part.untyped_storage()), name)
    return names


def _refuse_uneven_groups(step: Step, repeats: Repeats) -> None:
    """Alike parameters of different blocks must be in the same group of the optimizer."""
    group_of = {p: n for n, group in enumerate(step.optimizer.param_groups) for p in group["params"]}
    groups: dict[tuple[str, int], int | None] = {}
    for name, parameter in step.model.named_parameters():
        alike = repeats.likeness(name)
        if alike and groups.setdefault(alike, group_of.get(parameter)) != group_of.get(parameter):
            raise Irregular(f"the optimizer has {name} in another group than its like")


def _unrolled_counts(counts: Sequence[dict[str, int]], more: int) -> dict[str, int]:
    """Counts that grow by the same number with every block."""
    grown = {}
    for note in {note: None for each in reversed(counts) for note in each}:
        first, second, third = (each.get(note, 0) for each in counts)
        if third - second != second - first:
            raise Irregular(f"how often this was assumed does not grow evenly: {note}")
        grown[note] = third + more * (third - second)
    return grown


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {note: one.get(note, 0) + other.get(note, 0) for note in {**one, **other}}


def _even(counts: list[int], what: str) -> int:
    if len(set(counts)) > 1:
        raise Irregular(f"the number of {what} depends on the number of blocks")
    return counts[0]
