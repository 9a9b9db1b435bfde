"""Recognises samples by their values as they enter models."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, own, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.samples import SampleFacts, Shown
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.samples.arrays_in_sight import FEWEST, LONGEST, MOST_ROWS, arrays_in_sight, larger_than, prints
from surefoot.checks.samples.loaders import Loaders
from surefoot.torch_inside.modes import aside

MOST_EVALUATIONS = 64
"""How many forwards without gradients are read, whenever they come."""
_REPEATS = 6
"""A batch that more updates than this used again is searched for in larger arrays."""
_MOST_WORKED_ON = 64
_SHARED = 0.1
"""More than this share of a training's samples come again in another training with the same data."""
_PLAYED = 0.5
"""If the model saw more than this share of a batch without gradients, just before, it made the batch by playing."""
_TIMES = 4
"""An array must be this many times as large: training on all samples except a few is no bug."""


class Rows(Observer):
    """Records which samples were trained on, and which of them are evaluated."""

    after = (Gradients,)
    before = (Loaders,)
    reads = True

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self.shown: list[tuple[nn.Module, Shown]] = []
        self._trained: dict[int, set[int]] = {}
        """By training, because one fold evaluates what another trains on."""
        self._evaluated: set[int] = set()
        self._evaluated_rows: set[int] = set()
        self._played: dict[int, set[int]] = {}
        """By model, the rows that it saw without gradients since the last update."""
        self._plays = False
        """The model trains on what it saw while it played: there, states come again by chance."""
        self._last: set[int] = set()
        self._repeats = 0
        self._before: set[int] = set()
        """Hashes of everything that updates have used."""
        self._batches: list[list[torch.Tensor]] = []
        """The inputs of models since the last update."""
        self._worked_on: dict[tuple[int, tuple[int, ...]], weakref.ref[torch.Tensor]] = {}
        """Tensors that the loop used outside of models since then."""
        self._wholes: list[torch.Tensor] = []
        """Arrays of the loop that hold the repeated batch, and more."""

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Hears that a torch function has returned."""
        if not self.scene.close or self.scene.phases.in_model() or not torch.is_grad_enabled():
            return
        for each in args:
            wide = isinstance(each, torch.Tensor) and each.dim() and len(each) >= FEWEST
            if wide and not each.requires_grad and readable(each) and len(self._worked_on) < _MOST_WORKED_ON:
                self._worked_on[each.data_ptr(), tuple(each.shape)] = weakref.ref(each)

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        graded = torch.is_grad_enabled()
        if (graded and not self.scene.close) or (not graded and len(self.shown) >= MOST_EVALUATIONS):
            return
        if not graded and self._loaders.fed_by is not None and self._loaders.fed_by.role == "training":
            return  # the training set is measured on purpose
        made = graded and all(each.requires_grad for each in tensors((args, kwargs)))
        if made:
            return  # by another model
        entered = _of_samples(tensors((args, kwargs)))
        if graded and entered:
            self._batches.append([own(each) for each in entered])
        if sum(each[0].numel() for each in entered) < FEWEST:
            return
        columns = [prints(each) for each in entered]
        rows = [hash(each) for each in zip(*columns, strict=True)]
        trained = self._trained.setdefault(self.scene.training, set())
        played = self._played.setdefault(id(model), set())
        if graded:
            self._plays |= sum(each in played for each in rows) > _PLAYED * len(rows)
            trained.update(rows)
            return
        played.update(rows)
        self._evaluated_rows.update(rows)
        shared = sum(each in trained and differs for each, differs in zip(rows, _differ(entered[0]), strict=True))
        names = all(_is_whole(each) for each in entered)
        seen = Shown(self.scene.name(model), self.scene.updates, len(rows), shared, len(set(rows)), names)
        self.shown.append((model, seen))
        self._evaluated.update(columns[0])

    def update_ends(self, optimizer: Optimizer) -> None:
        sizes = {len(batch[0]) for batch in self._batches}
        used = [each for batch in self._batches for each in batch]
        with aside():
            there = [each for ref in self._worked_on.values() if (each := ref()) is not None]
            used += [each for each in there if len(each) in sizes]
        self._batches, self._worked_on, self._played = [], {}, {}
        if not self.scene.close or not used:
            return
        read = {digest(each): each for each in HOST.all_of(used)}
        self._last = self._last & set(read) if self._repeats else set(read)
        self._repeats = self._repeats + 1 if self._last else 0
        if self._repeats > _REPEATS:
            self._wholes = self._wholes or self._larger(read)
        self._before.update(read)

    def _larger(self, read: dict[int, torch.Tensor]) -> list[torch.Tensor]:
        """Arrays of the loop that hold the repeated batch, unless this update also used other rows of them."""
        arrays = arrays_in_sight(lists=True)
        found: list[torch.Tensor] = []
        for print_ in self._last:
            found += larger_than([read[print_]], arrays, times=_TIMES)
        others = [each for print_, each in read.items() if print_ not in self._before]
        return [] if any(True for each in others for _ in larger_than([each], arrays, times=_TIMES)) else found

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(shown=tuple(self._seen()), part_of=self._part_of())

    def _part_of(self) -> int:
        """The length of an array of which one batch is used over and over, and no row evaluated; 0 if there is none."""
        free = (each for each in self._wholes if len(each) > LONGEST or self._evaluated.isdisjoint(_all_prints(each)))
        return max(map(len, free), default=0)

    def are_shared(self, one: int, other: int) -> bool:
        """Did two trainings, named by the updates before them, get the same samples, as far as they were read?"""
        rows = [self._trained.get(each, set()) for each in (one, other)]
        return len(rows[0] & rows[1]) > _SHARED * min(map(len, rows))

    def are_others(self, training: int) -> bool:
        """Does a training get samples and loaders that no training before it had, as far as is known?"""
        known = self._trained.get(training, set())
        before = [rows for number, rows in self._trained.items() if number < training and rows]
        shares = any(len(known & rows) > _SHARED * min(len(known), len(rows)) for rows in before)
        return bool(known and before) and not shares and not self._loaders.share_data(training)

    def _seen(self) -> Iterator[Shown]:
        """What trained models evaluated; nothing if the training set is measured on purpose, or was made by playing."""
        trained = set().union(*self._trained.values())
        if self._plays or len(trained & self._evaluated_rows) > 0.9 * len(trained):
            return
        optimized = self.scene.optimized()
        for model, shown in self.shown:
            if not optimized.isdisjoint(model.parameters()):
                yield shown


def _all_prints(array: torch.Tensor) -> list[int]:
    return prints(array, most=len(array))


def _of_samples(given: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs that have a row for each sample, the largest first."""
    rows = [each for each in given if readable(each) and each.dim() and len(each)]
    rows.sort(key=lambda each: -each.numel())
    return [each for each in rows if len(each) == len(rows[0])]


def _differ(values: torch.Tensor) -> list[bool]:
    """Which rows hold more than one repeated number. Empty rows hold only one."""
    with aside():
        values = HOST.of(values)[:MOST_ROWS]
        rows = values.flatten(1) if values.dim() > 1 else values[:, None]
        return (rows != rows[:, :1]).any(1).tolist() if rows.shape[1] > 1 else [True] * len(rows)


def _is_whole(values: torch.Tensor) -> bool:
    """Are these ids, counts or flags, which two samples may easily share?"""
    with aside():
        return not values.is_floating_point() or bool(((known := HOST.of(values)) == known.round()).all())
