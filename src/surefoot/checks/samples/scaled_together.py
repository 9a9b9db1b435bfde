"""Finds arrays that hold training and evaluation samples and were scaled as a whole, before they were split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.samples import SampleFacts, Scaled
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.samples.arrays_in_sight import arrays_held_by, arrays_in_sight, row_prints
from surefoot.checks.samples.dataset_copies import root
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.windows import runs_of
from surefoot.torch_inside.modes import aside
from surefoot.world.device import wide

_FEWEST_ROWS, _FEWEST_EVALUATED = 48, 8
_MOST_COLUMNS = 512
_CENTRE, _SPREAD = 2e-5, 5e-4
"""How far the mean is from 0 and the deviation from 1 after scaling by them; random numbers are much further off."""
_MANY_VALUES = 16
_TRIES, _MOST = 3, 64
_RANGE = "the range from 0 to 1"
_PART = 0.1
"""At least this share of the array was trained on, and no evaluated row of it."""
_LONGEST = 1 << 16
_SHORTEST = 8
"""Rows of at least this many numbers may be windows of a series."""


class ScaledTogether(Observer):
    """Keeps rows of the first training batches and compares them with arrays in sight at the first evaluations."""

    after = (Gradients, Loaders)

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self._trained: dict[int, set[int]] = {}
        """By training: hashes of the rows, and of the steps of windows, that models were trained on."""
        self._evaluated: set[int] = set()
        self._forwards = 0
        self._found: list[tuple[Scaled, list[set[int]]]] = []
        """Arrays that were scaled as a whole; if by their range, with the rows at each of its ends."""

    def model_returned(self, model: nn.Module, args: Any, kwargs: Kwargs, output: object) -> None:
        graded = torch.is_grad_enabled()
        if (graded and not self.scene.close) or (not graded and (self._forwards >= _MOST or not self._trained)):
            return
        given = next((each for each in tensors((args, kwargs)) if _is_table(each)), None)
        if given is None:
            return
        trained = self._trained.setdefault(self.scene.training, set())
        if graded:
            trained.update(*_names(given, newest=False))
        elif trained and (self._loaders.fed_by is None or self._loaders.fed_by.role != "training"):
            self._forwards += 1
            rows, runs = _names(given, newest=True)
            self._evaluated |= rows | runs
            if self._forwards <= _TRIES and not self._found:
                self._look(given, rows, runs, trained)

    def _look(self, given: torch.Tensor, rows: set[int], runs: set[int], trained: set[int]) -> None:
        with aside():
            held_by_loaders = [arrays_held_by(root(each.dataset)) for each in self._loaders.training()]
            for one in (*arrays_in_sight(longest=_LONGEST), *(each for some in held_by_loaders for each in some)):
                if not _FEWEST_ROWS <= len(one) <= _LONGEST or not one.is_floating_point():
                    continue
                array = HOST.of(one)
                single = array.numel() == len(array)
                if not (runs if single else array.dim() == 2 and array.shape[1] == given.shape[-1]):
                    continue
                if how := _how(array):
                    names = _names_of_rows(array, single=single)
                    evaluated = runs if single else rows
                    if _holds_both(set(names), evaluated, trained):
                        ends = _ends(array, names) if how == _RANGE else []
                        self._found.append((Scaled(len(array), how, len(evaluated)), ends))
                        return

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(scaled_together=self._whole())

    def _whole(self) -> tuple[Scaled, ...]:
        """Arrays that were scaled by more than their training rows: evaluated rows alone reach an end of the range."""
        alone = ((each, any(rows <= self._evaluated for rows in ends) or not ends) for each, ends in self._found)
        return tuple(each for each, is_alone in alone if is_alone)


def _names_of_rows(array: torch.Tensor, *, single: bool) -> list[int]:
    """A hash for each row; for a single measurement, of the run that ends there."""
    if single:
        runs: list[int] = runs_of(array.reshape(1, -1)).ravel().tolist()
        return [0] * (len(array) - len(runs)) + runs
    return row_prints(array.float(), most=len(array))


def _holds_both(held: set[int], evaluated: set[int], trained: set[int]) -> bool:
    """Does an array hold what was evaluated, and was another part of it trained on?"""
    if len(evaluated) < _FEWEST_EVALUATED or evaluated & trained:
        return False
    return evaluated <= held and len(held & trained) >= _PART * len(held)


def _ends(array: torch.Tensor, names: list[int]) -> list[set[int]]:
    """For each column of many values, the rows that are 0, and those that are 1."""
    columns = [each for each in array.reshape(len(array), -1).t() if len(each.unique()) > _MANY_VALUES]
    places = [(column == end).nonzero().flatten().tolist() for column in columns for end in (0, 1)]
    return [{names[place] for place in some} for some in places]


def _is_table(tensor: torch.Tensor) -> bool:
    """Are these rows of a table, or windows of a series?"""
    floats = readable(tensor) and tensor.is_floating_point() and not tensor.requires_grad
    return floats and tensor.dim() in (2, 3) and tensor.shape[-1] <= _MOST_COLUMNS and len(tensor) >= 2


def _names(given: torch.Tensor, *, newest: bool) -> tuple[set[int], set[int]]:
    """Hashes of the rows, and of the runs in windows of a single measurement; of windows perhaps only the newest."""
    with aside():
        values = HOST.of(given).float()
        steps = values[:, -1:] if newest and values.dim() == 3 else values
        rows = set(row_prints(steps.reshape(-1, values.shape[-1]), most=4096)) if values.shape[-1] > 1 else set()
        if (values.dim() == 3 and values.shape[-1] > 1) or values.shape[1] < _SHORTEST:
            return rows, set()
        runs = runs_of(values.flatten(1))
        return rows, set((runs[:, -1] if newest else runs).ravel().tolist())


def _how(array: torch.Tensor) -> str:
    """How an array was scaled: by the mean and deviation of each column, by its range, or not at all.

    Columns of few values, such as flags, do not count.
    """
    values = wide(array).reshape(len(array), -1)
    for how, fits in (("mean 0 and deviation 1", _are_standard), (_RANGE, _are_ranged)):
        columns = fits(values)
        if bool(columns.any()):
            others = values[:, ~columns]
            told = [column for column in values[:, columns].t() if len(column.unique()) > _MANY_VALUES]
            if told and all(len(column.unique()) <= _MANY_VALUES for column in others.t()):
                return how
    return ""


def _are_standard(values: torch.Tensor) -> torch.Tensor:
    spread = [(values.std(0, correction=n) - 1).abs() < _SPREAD for n in (0, 1)]
    return (values.mean(0).abs() < _CENTRE) & (spread[0] | spread[1])


def _are_ranged(values: torch.Tensor) -> torch.Tensor:
    return (values.amin(0) == 0) & (values.amax(0) == 1)
