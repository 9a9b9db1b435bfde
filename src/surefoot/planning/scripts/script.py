"""Runs an unchanged script on a card that is not there, up to a few updates, and books what its tensors take there."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.weak import WeakTensorKeyDictionary

from surefoot.costs.caching_allocator import Follower
from surefoot.events.forked import only_here
from surefoot.events.listener import Listener
from surefoot.meters.books import Books
from surefoot.records.usage import Usage
from surefoot.torch_inside.fake_ranks import ranks_of_a_script
from surefoot.torch_inside.modes import TorchDispatchMode
from surefoot.torch_inside.patches import patched
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.card.card import Card
from surefoot.world.card.files import Held, held_back
from surefoot.world.gpu.target import Gpu
from surefoot.world.user_line import where

UPDATES = 3
"""The first makes the optimizer's state, the second is steady; a third shows whether the second was."""
MOST_REPEATS = 6
"""An optimizer that makes so many updates while another makes none ends a step by itself."""


class Enough(BaseException):
    """Ends a script after its last planned update. No `except Exception` of the script catches it."""


@dataclass
class ScriptTrace:
    """What a script's steps took on the card, and what is known of its run."""

    card: Card
    held: Held
    init: Usage = Usage()
    steps: list[Usage] = field(default_factory=list)
    after: Usage = Usage()
    """Of a script that ended by itself: what came after its last update."""
    parameters: int = 0
    """Those of the models that were there when the last step ended."""
    allocated_bytes: dict[str, int] = field(default_factory=dict)
    reserved_bytes: dict[str, int] = field(default_factory=dict)
    backwards: list[int] = field(default_factory=list)
    """The number of backwards in each step."""
    fetched: list[int] = field(default_factory=list)
    """The number of batches that the script took from loaders in each step."""
    loader_batches: int | None = None
    """The batches of the loader that the script trains on, in one epoch and on one rank."""
    most_steps: int | None = None
    """The steps that a trainer of a library was told to make."""
    ended: bool = False
    """Whether the script came to its end by itself."""


def trace_script(
    run: Callable[[], object], gpu: Gpu | None, folder: Path, *, ranks: int = 1, updates: int = UPDATES
) -> ScriptTrace:
    """Runs a script. With a GPU, the card computes as that does; without one, as this CPU does.

    What the script writes goes to `folder`.
    """
    card = Card(gpu, ranks=ranks)
    books = Books(kernels=card.kernels, work=gpu is not None)
    books.memory.counts = card.holds
    books.memory.modes_above = sum(isinstance(mode, TorchDispatchMode) for mode in card.above)
    # a script may train a model after another one is gone: nothing here keeps them
    books.phases.models, books.phases.names = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
    books.memory.owners = WeakTensorKeyDictionary()
    followers = {kind: Follower(expandable_segments=kind == "expandable") for kind in ("classic", "expandable")}
    books.memory.book.followers += followers.values()
    bytes_held = _Held()
    books.memory.book.followers.append(bytes_held)
    card.held_bytes = lambda: (bytes_held.now, bytes_held.peak)
    held = Held(folder)
    made = ScriptTrace(card, held)
    counts = _Counts(books, made, updates)
    books.ending = _NOBODY  # `counts` ends the steps
    with ExitStack() as entered:
        entered.enter_context(torch.random.fork_rng())
        entered.enter_context(ranks_of_a_script(ranks, card.device, card.calling))
        entered.enter_context(held_back(held, card))
        entered.enter_context(card)
        for mode in card.below:
            entered.enter_context(only_here(mode))
        entered.enter_context(books)
        books.phases.listeners.append(counts)
        entered.enter_context(_moving(card, books))
        entered.enter_context(patched(torch.optim.Optimizer, "__init__", counts.made_optimizer))
        entered.enter_context(patched(DataLoader, "__iter__", counts.loader_begins))
        entered.enter_context(patched(torch, "compile", functools.partial(_compiling, card)))
        try:
            with ExitStack() as modes:
                for mode in card.above:
                    modes.enter_context(only_here(mode))
                run()
            made.ended = True
        except Enough:
            pass
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
            made.ended = True
        if made.ended:
            made.after = books.close()
    made.steps = list(books.steps)
    made.allocated_bytes = {kind: each.allocator.peak_allocated_bytes for kind, each in followers.items()}
    made.reserved_bytes = {kind: each.allocator.reserved_bytes for kind, each in followers.items()}
    return made


_NOBODY: Any = object()


class _Held:
    """The bytes of live storages, now and at their peak. It is told of each storage twice: at its begin and its end."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._live: set[Any] = set()

    def __call__(self, booking: Any) -> None:
        if booking in self._live:
            self._live.remove(booking)
            self.now -= booking.size
        else:
            self._live.add(booking)
            self.now += booking.size
            self.peak = max(self.peak, self.now)


class _Counts(Listener):
    """Ends a step when each optimizer of the script has made an update, and the script after enough of them."""

    def __init__(self, books: Books, made: ScriptTrace, updates: int) -> None:
        self.books, self.made, self.updates = books, made, updates
        self.optimizers: Counter[int] = Counter()
        self.known: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.backwards = self.fetched = 0
        self.begun = False

    def made_optimizer(self, plain: Any) -> Any:
        """Notes every optimizer that the script makes."""

        def begin(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            plain(optimizer, *args, **kwargs)
            self.known.add(optimizer)

        return begin

    def loader_begins(self, plain: Any) -> Any:
        """Notes how many batches the loader has that the script goes through."""

        def begin(loader: DataLoader[Any]) -> Any:
            if torch.is_grad_enabled():  # else it is the loader of an evaluation
                with suppress(TypeError):
                    self.made.loader_batches = len(loader)
            return plain(loader)

        return begin

    def forward_begins(self, model: torch.nn.Module) -> None:
        if not self.begun:
            self.begun = True
            self.made.init = self.books.close()

    def backward_ends(self) -> None:
        self.backwards += 1

    def batch_fetched(self, seconds: float) -> None:
        self.fetched += 1

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizers[id(optimizer)] += 1
        if not {id(each) for each in self.known} <= set(self.optimizers):
            if max(self.optimizers.values()) < MOST_REPEATS:
                return
            self.known = weakref.WeakSet(each for each in self.known if id(each) in self.optimizers)
        self.books.end_step()
        every = [each for model in self.books.phases.models for each in model.parameters()]
        self.made.parameters = sum({id(each): each.numel() for each in every}.values())
        self.made.backwards.append(self.backwards)
        self.made.fetched.append(self.fetched)
        self.optimizers.clear()
        self.backwards = self.fetched = 0
        if len(self.books.steps) >= self.updates:
            self.made.most_steps = told_steps()
            raise Enough


def told_steps() -> int | None:
    """The steps that a running trainer was told to make, if it is that of transformers or of Lightning."""
    frame = sys._getframe(1)
    while frame is not None:
        for value in frame.f_locals.values():
            steps = _steps_of(value)
            if isinstance(steps, int) and steps > 0:
                return steps
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _steps_of(value: object) -> object:
    """The steps of a trainer. Lightning's counts them from its epochs, its loaders and its accumulation."""
    kind = type(value)
    if kind.__name__ == "Trainer" and kind.__module__.partition(".")[0] in ("lightning", "pytorch_lightning"):
        return getattr(value, "estimated_stepping_batches", None)
    state = getattr(value, "__dict__", {}).get("state")
    return getattr(state, "max_steps", None)


def _compiling(card: Card, plain: Any) -> Any:
    """Notes what a script compiles: it runs as written here."""

    def compiling(*args: Any, **kwargs: Any) -> Any:
        card.assume(f"torch.compile{where()}: its memory and seconds are those of the code as written")
        return plain(*args, **kwargs)

    return compiling


@contextmanager
def _moving(card: Card, books: Books) -> Iterator[None]:
    """Moves the model of a script that put nothing on a card, and what it is called with."""

    def before(module: torch.nn.Module, args: Any) -> Any:
        if not card.used and torch.is_grad_enabled() and any(each.requires_grad for each in module.parameters()):
            card.moved = True
        if not card.moved:
            return None
        if any(not card.holds(each) for each in module.parameters()):
            module.to(card.device)
            for model, prefix in books.phases.models.items():  # its parameters were found before they were moved
                books.memory.model_found(model, prefix)
        for tensor in tensors_in(args):
            if not card.holds(tensor):
                books.memory.settle(card.once(tensor), "inputs", "")
        return map_tensors(card.once, args)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()
