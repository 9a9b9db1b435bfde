"""Runs a recipe's step on fake tensors, and books its memory, FLOPs and traffic."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch

from surefoot.costs.caching_allocator import Follower
from surefoot.data.batches import Batches, batches_of, has_samples
from surefoot.meters.books import Books
from surefoot.meters.fused import IF_LOSS_INSIDE, Regions
from surefoot.meters.operator_script import Script
from surefoot.planning.idle_parts import idle_parts
from surefoot.planning.later_steps import Later, LaterFailed, Looks, Watch
from surefoot.planning.step_counts import integers_kept
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.sources import has_state
from surefoot.records.usage import Usage
from surefoot.step import Step, model_of
from surefoot.techniques.compile import units
from surefoot.techniques.ema import Averages
from surefoot.techniques.mesh import layout_of
from surefoot.torch_inside.sparse import LAYOUTS
from surefoot.trees import map_tensors, plain, tensors_in
from surefoot.world.gpu.target import Gpu
from surefoot.world.world import FakeWorld

if TYPE_CHECKING:
    from typing_extensions import Self

_KEPT = "kept without a state dict"


@dataclasses.dataclass
class Trace:
    """The usage of each stage (building, steps, evaluation, resume), and the assumptions made."""

    step: Step
    init: Usage
    host_bytes: int = 0
    """Host memory used for building, if the model was not built on the device."""
    choices: tuple[str, ...] = ()
    first: Usage = Usage()
    steady: Usage = Usage()
    layers: Usage | None = None
    """Of a step whose layers are measured, if the recipe has such steps."""
    evaluate: Usage = Usage()
    resume: Usage = Usage()
    script: Script | None = None
    """The operators of the steps, if requested."""
    attention: tuple[tuple[int, ...], ...] = ()
    allocated_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    reserved_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    state_bytes: int = 0
    checkpoint_bytes: int = 0
    assumed: dict[str, int] = dataclasses.field(default_factory=dict)
    without: str = ""
    """The parts of the model that the steps were planned without. Empty if there are none."""
    no_resume: str = ""
    """Why a new step does not take the saved state. Empty if it does."""
    too_large: int = 0
    """The number of distinct kernel calls that were too large to try."""
    unknown: frozenset[str] = frozenset()
    """The operators whose GPU workspace is unknown."""
    later: Later = dataclasses.field(default_factory=Later)
    """Steps after the second, and why they may differ from it."""
    blocks: str = ""
    """The blocks that were traced for all others, or why none were. Empty if no block repeats often."""


class Tracing:
    """Builds a step in a fake world, under the meters, and runs it. Enter it first."""

    def __init__(
        self,
        recipe: Recipe,
        gpu: Gpu | None = None,
        *,
        ranks: int = 1,
        work: bool = False,
        script: bool = False,
        largest: Sequence[tuple[int, int]] = (),
        resumes: bool = True,
        looks: Looks = Looks.ALL,
    ) -> None:
        self.recipe, self.work, self.resumes = recipe, work, resumes
        self.looks = Looks.NOT if script else looks
        self._hashes: list[list[int]] = []
        self.largest = largest
        """The steps and ranks with the largest micro-batches, which later steps get. Empty if all are alike."""
        self.world = FakeWorld(ranks=ranks, density=recipe.density, gpu=gpu)
        self.layout = layout_of(recipe, ranks=ranks)
        self.kernels = self.world.kernels
        self.books = Books(kernels=self.kernels, work=work, host_apart=gpu is not None)
        self.script = Script(self.books.phases) if script else None
        if self.script is not None:
            self.books.beside(self.script)
        self._followers = {kind: _following(kind) for kind in ("classic", "expandable")}
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        self._entered.enter_context(kept())
        self._entered.enter_context(integers_kept([self.recipe.loss, self.recipe.step, self.recipe.optimizer]))
        self._entered.enter_context(_seldom_collected())
        self._entered.enter_context(self.world)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._entered.__exit__(*failure)

    @functools.cached_property
    def model(self) -> torch.nn.Module:
        """The model before ranks share it. Its memory is booked."""
        self.books.memory.book.followers += self._followers.values()
        with self.books:
            return model_of(self.recipe, self.layout, self.world.device)

    def traced(self) -> Trace:
        """Builds and runs the whole step."""
        made = self.build()
        self.run(made)
        return made

    def build(self) -> Trace:
        """Builds the model, shares it among ranks, and builds the optimizer."""
        model = self.model
        with self.books:
            step = Step(of_built(self.recipe, model), self.world)
            made = self.built(step, self.books.close)
            know(self.books, step)
        return made

    def built(self, step: Step, close: Callable[[], Usage]) -> Trace:
        """The memory that building a step took. Memory of a build on the host does not count for the device."""
        init, left = close(), close()
        if not self._built_on_host(step):
            return Trace(step, init, choices=step.choices())
        book = self.books.memory.book
        self._followers = {kind: _following(kind, book.live()) for kind in self._followers}
        book.followers[:] = self._followers.values()
        return Trace(step, left, host_bytes=init.peak.peak_bytes, choices=step.choices())

    def run(self, made: Trace) -> None:
        """Runs two steps, one that measures layers and an evaluation if the recipe has them, and a resume.

        The first step creates optimizer state. If later ones may differ from the second, they are run too.
        """
        books, step, loaded = self.books, made.step, self.loaded(self.books)
        watch = Watch(step, books, self.world.operators, looks=self.looks, places=len(self.largest))
        with books:
            with idle_parts(step) as idle:
                watch.first_two(lambda: take(step, books, next(loaded)), self.batches_differed)
                attention = books.flops.attention
                try:
                    made.later = watch.later(lambda: take(step, books, next(loaded)))
                except Exception as error:
                    raise LaterFailed(error) from error
            made.first, made.steady = books.steps[0], made.later.usages[made.later.highest]
            made.layers = self.measured(step)
            made.script = self.script
            made.choices = step.choices()  # a budget for recomputation is decided by now
            made.attention = attention
            books.close()  # the gradients of the last step are gone by now
            made.allocated_bytes, made.reserved_bytes = self.allocated_and_reserved_bytes()
            made.evaluate = self.evaluated(step, loaded, books.close)
            made.assumed = dict(self.world.assumptions)
            made.without = idle() if self.world.guesses else ""
        saved = saved_state(step)
        made.state_bytes = sum(tensor.untyped_storage().nbytes() for tensor in _once(tensors_in(saved)))
        made.checkpoint_bytes = whole_bytes(saved)
        with Books(kernels=self.kernels) as beside:
            beside.memory.see(saved)
            try:
                made.resume = self.resumed(beside, saved)
            except (RuntimeError, ValueError, KeyError) as error:  # a model that changed its own modules in a step
                made.no_resume = f"a new model does not take the state of this one: {_first_reason(error)}"
        made.too_large, made.unknown = len(self.kernels.too_large), frozenset(self.kernels.unknown)

    def measured(self, step: Step) -> Usage | None:
        """The usage of a step whose layers are measured, up to the end of its update. It has the largest batch too."""
        layers = step.measure_layers()
        if layers is None:
            return None
        loaded = self.loaded(self.books)
        next(loaded)
        with layers:
            take(step, self.books, next(loaded))
        return self.books.steps[-1]

    def evaluated(self, step: Step, loaded: Iterator[Iterator[Any]], close: Callable[[], Usage]) -> Usage:
        """The usage of an evaluation of one step's batches. Nothing if the recipe has no evaluation."""
        evaluates = self.recipe.evaluation is not None
        if evaluates:
            step.evaluate(next(loaded))
        usage = close()
        return usage if evaluates else Usage()

    def _built_on_host(self, step: Step) -> bool:
        """Whether the model is built in host memory: for sharding on GPUs, only the shards go to the device."""
        return self.world.gpu is not None and step.layout.shards

    def loaded(self, books: Books) -> Iterator[Iterator[Any]]:
        """The micro-batches of each step. The second one has the largest, if they differ."""
        count = self.recipe.micro_batches(self.layout.data_ranks)
        batches = self._batches_at(0, self.layout.data_rank)
        batches.hashed, self._hashes = True, [batches.hashes]
        self._samples = len(cast(Sized, batches.dataset)) if has_samples(batches.dataset) else math.inf
        yield books.seen(self.world.take(batches) for _ in range(count))
        batches.begin_step()
        if self.largest:
            batches = self._batches_at(*self.largest[0])
            batches.hashed = True
        self._hashes.append(batches.hashes)
        yield books.seen(self.world.take(batches) for _ in range(count))
        batches.hashed = False
        for place in self.largest[1:]:
            others = self._batches_at(*place)
            yield books.seen(self.world.take(others) for _ in range(count))
        while True:
            yield books.seen(self.world.take(batches) for _ in range(count))

    def _batches_at(self, step: int, rank: int) -> Batches:
        """The micro-batches of a rank from a step on. A source with a state has to make those before it."""
        ranks = self.layout.data_ranks
        batches = batches_of(self.recipe, first_step=step, rank=rank, ranks=ranks)
        if has_state(batches.dataset):
            for _ in range(step * self.recipe.micro_batches(ranks)):
                next(batches)
        return batches

    def batches_differed(self) -> bool:
        """Whether the second step had other batches than the first: not the same samples in another order."""
        first, second = self._hashes
        return first != second and self._samples > self.recipe.micro_batch_size * self.recipe.micro_batches()

    def allocated_and_reserved_bytes(self) -> tuple[dict[str, int], dict[str, int]]:
        """The most bytes that the allocators had in use, and the bytes they have reserved. Stops following them."""
        self.books.memory.book.followers.clear()
        allocators = {kind: follower.allocator for kind, follower in self._followers.items()}
        return (
            {kind: allocator.peak_allocated_bytes for kind, allocator in allocators.items()},
            {kind: allocator.reserved_bytes for kind, allocator in allocators.items()},
        )

    def resumed(self, books: Books, saved: dict[str, Any] | None) -> Usage:
        """Builds a new step next to a saved state, which is already booked, and loads the state."""
        books.close()
        if not self.resumes:
            return Usage()
        step = Step(self.recipe, self.world)
        if self._built_on_host(step):
            books.close()
        if saved is not None:
            load_state(step, saved)
        return books.close()


def of_built(recipe: Recipe, model: torch.nn.Module) -> Recipe:
    """The recipe of a model that is built already, with all that `adapt` does to it."""
    return dataclasses.replace(recipe, model=lambda: model, adapt=None if recipe.adapt is None else _as_it_is)


def _as_it_is(model: torch.nn.Module) -> torch.nn.Module:
    return model


def know(books: Books, step: Step) -> None:
    """Registers a step with the books: its modules, its mesh, and its compiled regions."""
    books.phases.find(step.model)
    books.ending = step.optimizer
    books.memory.know_averages({} if step.ema is None else step.ema.tensors)
    books.traffic.know(step.mesh)
    if step.recipe.compile != "off":
        books.work.regions = Regions(units(step.model, step.recipe, unless=IF_LOSS_INSIDE))


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Runs Python's garbage collector less often: a trace makes many objects and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def take(step: Step, books: Books, batches: Iterable[Any]) -> None:
    """Takes one step, and ends it in the books.

    They hear its end themselves, unless it makes updates of its own, or its optimizer is a wrapper that torch tells
    nobody of: one that steps another optimizer and does not call `Optimizer.__init__`.
    """
    before = len(books.steps)
    step(batches)
    if step.is_own or len(books.steps) == before:
        books.end_step()


def _following(kind: str, live: Iterable[Any] = ()) -> Follower:
    """A simulated allocator that holds all live storages."""
    follower = Follower(expandable_segments=kind == "expandable")
    for each in live:
        follower(each)
    return follower


def saved_state(step: Step) -> dict[str, Any]:
    """The state of a step as if read from a file: a copy of every tensor; tied ones are copied once."""
    copies: dict[int, torch.Tensor] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        made = (
            torch.empty_like if tensor.layout is torch.strided else torch.clone
        )  # an empty sparse one has no elements
        return copies.setdefault(_identity(tensor), made(tensor))

    model = step.model.state_dict()
    model.update(map_tensors(copy, dict(model)))  # in place: the dict also holds the versions of its modules
    averages = {} if step.ema is None else {"averages": map_tensors(copy, dict(step.ema.tensors))}
    return {"model": model, "optimizer": map_tensors(copy, _state_of(step.optimizer)), **averages}


def _state_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state dict of an optimizer; of one that has none, because it wraps another, what it keeps."""
    try:
        return optimizer.state_dict()
    except AttributeError:
        return {_KEPT: dict(enumerate(optimizer.state.values()))}


def whole_bytes(saved: dict[str, Any]) -> int:
    """The bytes of a saved state, with the shards of all ranks."""
    tensors = {_identity(tensor): tensor for tensor in tensors_in(saved)}
    parts = (part for each in tensors.values() for part in (plain(each) if each.layout in LAYOUTS else (each,)))
    return sum(part.numel() * part.element_size() for part in parts)


def load_state(step: Step, saved: dict[str, Any]) -> None:
    step.model.load_state_dict(saved["model"])
    if _KEPT not in saved["optimizer"]:
        step.optimizer.load_state_dict(saved["optimizer"])
    for name, average in saved.get("averages", {}).items():
        cast(Averages, step.ema).tensors[name].copy_(average)


def _first_reason(error: Exception) -> str:
    """What torch says of a state that does not load. Of a module it gives a heading and a line for each reason."""
    said = str(error).splitlines() or [type(error).__name__]
    return said[min(1, len(said) - 1)].strip()


def _once(tensors: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    """This rank's parts of some tensors, each storage once."""
    return list({_identity(part): part for tensor in tensors for part in plain(tensor)}.values())


def _identity(tensor: torch.Tensor) -> int:
    return id(next(plain(tensor)).untyped_storage())
