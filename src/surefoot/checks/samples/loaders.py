"""Watches the DataLoaders that a loop iterates, and whether they serve training or evaluation."""

from __future__ import annotations

import inspect
import pickle
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, readable, tensors
from surefoot.checks.engine.types import AnyLoader
from surefoot.checks.facts.samples import Loader, SampleFacts
from surefoot.checks.loop.forwards import random_state
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.samples.arrays_in_sight import names_in_sight, row_prints
from surefoot.checks.samples.loader_use import Seen
from surefoot.checks.samples.orders_again import OrdersAgain
from surefoot.checks.samples.same_data import are_same
from surefoot.checks.samples.unseeded_draws import GENERATORS
from surefoot.events.callers import library_functions, reading_function
from surefoot.torch_inside.modes import aside
from surefoot.torch_inside.patches import patch

if TYPE_CHECKING:
    from typing_extensions import Self

_FIRSTS = 3
"""How many passes have their first batch read, whenever they come."""
_STREAMED = 64
"""How many batches of a stream are read, if workers read it."""
_FEWEST_SHARED, _SHARED = 8, 0.1
"""At least this many samples of one worker, and this share, must also come from another worker."""
_SHUFFLES = ("epoch", "seed", "generator", "rng", "shuffle")
_DRAWS = re.compile("randperm|shuffle|permut")
"""Attributes and code of a sampler that should give a different order in every pass."""


class Loaders(Observer):
    """Follows every DataLoader that is iterated."""

    after = (Gradients,)

    def __init__(self, scene: Scene, gradients: Gradients, orders: OrdersAgain) -> None:
        super().__init__(scene)
        self._orders = orders
        self.seen: dict[int, Seen] = {}
        self.latest: Seen | None = None
        self._gradients = gradients
        self._closing: Seen | None = None
        self.fed_by: Seen | None = None
        """The loader that yielded a batch right before the last forward."""
        self._waiting = False
        self._given = False
        """Part of the last batch has entered a model since the last update."""
        self._first: int | None = None
        """The hash of the first batch of a pass, until it is used."""
        self._drawn_at = 0
        """The state of the random generators at that time."""
        self.delivered: deque[list[list[int]]] = deque(maxlen=4)
        """For each of the last batches: the row hashes of each tensor with one row per sample."""
        self.handed_out = 0
        """How many batches all loaders have yielded so far."""
        self.lengths: set[int] = set()
        """The lengths of the tensors in the last batch."""
        self._since_update: set[int] = set()
        """The loaders that have yielded batches since the last update."""
        self._left: Seen | None = None
        """The loader whose last pass left gradients that nobody has cleared since."""

    def __enter__(self) -> Loaders:
        begins = self.scene.failsafe.callback(self._begins)

        def make(plain: Any) -> Any:
            def followed(loader: AnyLoader) -> Any:
                batches, seen = plain(loader), begins(loader)
                return batches if seen is None else _Followed(batches, self, seen)

            return followed

        self._entered.callback(patch(DataLoader, "__iter__", make))
        return self

    def _begins(self, loader: AnyLoader) -> Seen:
        self.settle()
        seen = self.seen.setdefault(id(loader), Seen(loader, from_update=self.scene.updates))
        if not seen.passes:
            seen.names = names_in_sight(loader) or names_in_sight(loader.dataset)
            seen.reader, seen.library = reading_function(), library_functions()
        seen.passes += 1
        seen.only_evaluates = False
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, DistributedSampler):
            seen.epochs.append(sampler.epoch)
        self.latest = seen
        return seen

    def yielded(self, seen: Seen, batch: Any, *, first: bool) -> None:
        """Hears that a loader has yielded a batch."""
        seen.batches += 1
        seen.until_update = self.scene.updates
        self.handed_out += 1
        self.lengths = {len(each) for each in tensors(batch) if each.dim()}
        seen.fresh = True
        self.latest = seen
        self._since_update.add(id(seen))
        for each in self.seen.values():
            each.since, each.held = 0, set()
        self._first, self._waiting = None, True
        firsts = seen.first_columns.setdefault(self.scene.training, [])
        begins = first and len(firsts) < _FIRSTS
        streams = seen.passes == 1 and len(seen.streamed) < _STREAMED and _is_read_by_workers(seen.loader)
        if not (self.scene.close or begins or streams or (first and len(seen.entered) < _FIRSTS)):
            return
        held = [each for each in tensors(batch) if readable(each)]
        read = [digest(each) for each in held]
        if self.scene.close:
            seen.held = set(read)
            seen.columns.append(read)
            self.delivered.append([row_prints(each) for each in held if each.dim() and len(each) > 1])
        if streams:
            seen.streamed.append(_samples(held) if seen.loader.batch_size else [hash(tuple(read))])
        if begins:
            firsts.append({print_ for print_, each in zip(read, held, strict=True) if _tells_order(each)})
            seen.first_batches.setdefault(self.scene.training, []).append(hash(tuple(read)))
        if first:
            self._first, self._drawn_at = hash(tuple(read)), _random_numbers()

    def ended(self, seen: Seen) -> None:
        """Hears that a pass is over. A loader that reads ahead says so before its last batch is used."""
        self._closing = seen
        self._orders.pass_ended(seen)
        seen.only_evaluates = seen.evaluations > 0 and not seen.updates

    def clearing(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Records leftover gradients: those that no update has used after the last batch of a pass was used."""
        seen, self._closing = self._closing, None
        windows = [each for each in self._gradients.windows if each]
        usual = max(set(windows), key=windows.count) if windows else 1
        pending = len(self._gradients.pending)
        if seen is not None and seen.role == "training" and usual > 1 and 0 < pending < usual and not seen.goes_on:
            seen.leftover, seen.window = pending, usual
            self._left = seen

    def gradients_discarded(self) -> None:
        self._left = None

    def _go_on(self) -> None:
        """Clears the leftover if the next update, of the usual size, uses the gradients that a pass left."""
        left, self._left = self._left, None
        windows = [each for each in self._gradients.windows if each]
        if left is not None and windows and windows[-1] == left.window == min(windows):
            left.leftover, left.goes_on = 0, True

    def update_begins(self, optimizer: Optimizer) -> None:
        self._gradients.updates[-1].loaders, self._since_update = len(self._since_update), set()

    def draws(self, rows: int) -> bool:
        """Does a training loader draw batches of this many samples at random?"""
        loaders = [each.loader for each in self.seen.values() if each.role == "training"]
        return any(each.batch_size == rows and not isinstance(each.sampler, SequentialSampler) for each in loaders)

    def update_ends(self, optimizer: Optimizer) -> None:
        self._go_on()
        seen = self.latest
        if seen is not None and not seen.only_evaluates:
            seen.updates += 1
            seen.worked_on += seen.fresh
            seen.fresh, seen.until = False, seen.batches
            seen.trainings.add(self.scene.training)
            seen.since += self._given
            seen.most_since = max(seen.most_since, seen.since)
        self._given = False

    def model_called(self, model: nn.Module, args: object) -> None:
        seen = self.latest
        self.fed_by, self._waiting = (seen if self._waiting else None), False
        if seen is None:
            return
        if torch.is_grad_enabled():
            self._first = None  # inputs made with gradients, like attacks, differ anyway
            entered = {digest(each) for each in tensors(args) if readable(each)} if self.scene.close else set()
            self._given |= not entered.isdisjoint(seen.held)
            seen.given |= entered & seen.held
            return
        seen.evaluations += 1
        seen.trainings.add(self.scene.training)
        if self._first is not None and self._drawn_at != _random_numbers():
            given = hash(tuple(digest(each) for each in tensors(args) if readable(each)))
            seen.entered.append((self.scene.updates, self._first, given))
        self._first = None

    def training_epoch(self) -> int | None:
        """Updates in one pass over the training loader, by its length and the backwards per update."""
        for seen in self.seen.values():
            length = _length(seen.loader)
            if seen.role == "training" and length:
                windows = self._gradients.windows or [1]
                return max(1, length // max(1, round(sum(windows) / len(windows))))
        return None

    def training_passes(self) -> int:
        """How many passes over a training loader were started."""
        return max((seen.passes for seen in self.seen.values() if seen.role == "training"), default=0)

    def training(self) -> Iterator[AnyLoader]:
        """The loaders that updates were made from."""
        yield from (seen.loader for seen in self.seen.values() if seen.role == "training")

    def share_data(self, training: int) -> bool:
        """Does the last batch come from a data set that an earlier training used?"""
        data = None if self.latest is None else self.latest.loader.dataset
        before = (each for each in self.seen.values() if each.updates and min(each.trainings) < training)
        return data is not None and any(are_same(each.loader.dataset, data) for each in before)

    def trained_batches(self) -> int:
        """How many batches training loaders have yielded."""
        return sum(seen.batches for seen in self.seen.values() if seen.role == "training")

    def training_batches(self) -> int | None:
        """Batches in one pass over the training loader."""
        lengths = [_length(seen.loader) for seen in self.seen.values() if seen.role == "training"]
        return next((each for each in lengths if each), None)

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(loaders=tuple(self._iterated()))

    def _iterated(self) -> Iterator[Loader]:
        every = list(self.seen.values())
        for place, seen in enumerate(every):
            sampler = getattr(seen.loader, "sampler", None)
            by_epoch = isinstance(sampler, DistributedSampler) and sampler.shuffle
            shuffled = isinstance(sampler, RandomSampler) or by_epoch or _is_to_shuffle(seen.loader)
            batching = getattr(seen.loader, "batch_sampler", None)
            firsts = max(seen.first_columns.values(), key=len, default=[])
            passes = firsts if seen.batches >= 2 * seen.passes else []
            yield Loader(
                kind=type(seen.loader.dataset).__name__,
                role=seen.role,
                passes=seen.passes,
                batches=_length(seen.loader),
                drops_last=_drops(seen.loader) or _drops(batching),
                workers=seen.loader.num_workers,
                keeps_workers=bool(seen.loader.persistent_workers),
                same_epoch=by_epoch and len(seen.epochs) >= 2 and len(set(seen.epochs)) == 1,
                order_again=self._orders.again(seen, every[:place]) if shuffled and seen.updates else "",
                same_first_batch=shuffled and not by_epoch and len(passes) >= 2 and bool(set.intersection(*passes)),
                leftover=seen.leftover,
                window=seen.window,
                updates_of_a_batch=seen.most_since,
                worked_through=seen.worked_on >= 2 * seen.passes and 2 * seen.worked_on >= seen.until,
                told_twice=bool(seen.streamed) and _is_told_twice(seen.streamed, seen.loader.num_workers),
                out_of_order=shuffled or _is_out_of_order(getattr(batching, "sampler", sampler)),
                random_inputs=seen.varies,
            )


class _Followed:
    """A loader's iterator that reports batches and passes them on unchanged."""

    def __init__(self, plain: Any, loaders: Loaders, seen: Seen) -> None:
        self._plain, self._seen, self._read = plain, seen, 0
        callback = loaders.scene.failsafe.callback
        self._yielded, self._ended = callback(loaders.yielded), callback(loaders.ended)

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._plain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def __next__(self) -> Any:
        try:
            batch = next(self._plain)
        except StopIteration:
            self._ended(self._seen)
            raise
        self._yielded(self._seen, batch, first=self._read == 0)
        self._read += 1
        if self._read == _length(self._seen.loader):  # some loops count, and do not wait for StopIteration
            self._ended(self._seen)
        return batch


def _random_numbers() -> int:
    """A hash of the states of the default random generators."""
    return hash((random_state(), *(pickle.dumps(state()) for _, state in GENERATORS.values())))


def _is_out_of_order(sampler: Any) -> bool:
    """Is a sampler random, or a list of places that are not in order?"""
    if isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
        return True
    if not isinstance(sampler, list | tuple | torch.Tensor) or not len(sampler):
        return False
    places = torch.as_tensor(sampler)
    return places.dim() == 1 and bool((places.diff() < 0).any())


def _drops(batching: Any) -> bool:
    """Does a loader or batch sampler leave out samples that do not fill a batch, and are there any?"""
    if not getattr(batching, "drop_last", False):
        return False
    try:
        return bool(len(batching.sampler) % batching.batch_size)
    except (AttributeError, TypeError):
        return False  # how many samples there are is not known


def _length(loader: AnyLoader) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _is_read_by_workers(loader: AnyLoader) -> bool:
    return isinstance(loader.dataset, IterableDataset) and loader.num_workers > 1


def _samples(held: list[torch.Tensor]) -> list[int]:
    """A hash of each sample of a batch."""
    rows = [row_prints(each) for each in held if each.dim()]
    return [hash(each) for each in zip(*(row for row in rows if len(row) == len(rows[0])), strict=True)]


def _is_told_twice(batches: list[list[int]], workers: int) -> bool:
    """Do workers, which take turns, yield each other's samples, and not just repeat their own?"""
    one, other = ([each for batch in batches[worker::workers] for each in batch] for worker in (0, 1))
    shared = len(set(one) & set(other))
    again = len(one) - len(set(one))
    return shared >= _FEWEST_SHARED and shared > _SHARED * min(len(one), len(other)) and again < 0.25 * shared


def _is_to_shuffle(loader: AnyLoader) -> bool:
    """Should a custom sampler give a different order in every pass, by its attributes or its source?"""
    for sampler in (loader.sampler, loader.batch_sampler):
        if sampler is None or type(sampler).__module__.startswith(("torch.", "builtins")):
            continue
        has = any(getattr(sampler, name, False) not in (False, None) for name in _SHUFFLES)
        with suppress(OSError, TypeError):
            has |= _DRAWS.search(inspect.getsource(type(sampler))) is not None
        if has and getattr(sampler, "shuffle", True) is not False:
            return True
    return False


def _tells_order(column: torch.Tensor) -> bool:
    """Do the rows of a column differ, so that another order would show, and do they not just count up?"""
    if column.dim() == 0 or len(column) < 2:
        return False
    with aside():
        rows = column.detach().flatten(1) if column.dim() > 1 else column.detach()[:, None]
        kinds = len(rows.unique(dim=0))
        rises = rows.shape[1] == 1 and bool((rows[1:] >= rows[:-1]).all())
    return not rises and (kinds >= 4 or (kinds >= 2 and len(rows) >= 16))
