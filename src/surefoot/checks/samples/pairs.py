"""Follows which target each sample is trained with."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, own, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.samples import Parted, SampleFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.samples.arrays_in_sight import Arrays, row_prints
from surefoot.checks.samples.index_pairs import counts_places
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.rising_targets import Rising
from surefoot.checks.samples.told_columns import ToldColumns
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

MOST_UPDATES = 64
"""Samples are followed for this many updates: most come again in a second pass."""
_FEWEST_ROWS, _FEWEST_ELEMENTS = 8, 4
_FEWEST_AGAIN = 16
_CHANCE = 0.6
"""Targets that change more often than this share of what chance gives do not belong to their samples."""
_SHUFFLES, _BEYOND_CHANCE = 20, 6
_GUESSES = {"argmax", "max", "topk", "multinomial", "bernoulli", "sort"}


Way = tuple[str, frozenset[tuple[Any, ...]]]
"""The line of a loss, and how models were called before it."""


@dataclass
class _Followed:
    """The targets that samples had in the loss of one line."""

    where: str
    known: dict[int, int] = field(default_factory=dict)
    update: int = -1
    in_update: dict[int, int] = field(default_factory=dict)
    """The targets of the samples since the last update."""
    targets: Counter[int] = field(default_factory=Counter)
    again: int = 0
    """Samples that came again; of those, with another target; of those, with one that no sample had before."""
    differ: int = 0
    foreign: int = 0
    ambiguous: bool = False
    """A sample had two targets in one update, as with several tasks, or targets were guessed."""
    exchanged: list[tuple[int, int]] = field(default_factory=list)
    """For samples that came again: the target before, and now."""

    def is_apart(self) -> bool:
        """Did samples that came again have other samples' targets about as often as by chance?"""
        if self.ambiguous or self.again < _FEWEST_AGAIN or self.foreign > 0.1 * self.differ:
            return False
        chance = other_by_chance(list(self.targets.elements()))
        return chance > 0.3 and self.differ > _CHANCE * chance * self.again and not _are_related(self.exchanged)


class Pairs(Observer):
    """Compares inputs of models with targets of losses, row by row."""

    after = (Gradients,)
    before = (Loaders,)
    functions = _GUESSES

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self._inputs: list[torch.Tensor] = []
        self._ways: set[tuple[Any, ...]] = set()
        """Which models were called since the last backward, and with which flags: there may be several tasks."""
        self._targets: list[tuple[str, torch.Tensor]] = []
        self._followed: dict[Way, _Followed] = {}
        self._guessed: set[int] = set()
        """The lengths of tensors that were guessed or drawn since the last update."""
        self._apart: list[str] = []
        self._together = 0
        self._rising = Rising()
        self._columns = ToldColumns()
        self.target_prints: set[int] = set()
        """Hashes of the targets of losses that are computed outside models."""
        self.sources: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Arrays from which inputs and targets are taken by the same rows."""
        self.places: list[tuple[int, bool]] = []
        """The lengths of arrays that hold the inputs, and whether the inputs are rows in order."""

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Hears that a torch function has returned."""
        if getattr(function, "__name__", "") in _GUESSES and self._follows() and not self.scene.phases.in_model():
            self._guessed |= {len(each) for each in tensors(out) if each.dim()}

    def target(self, target: Any) -> None:
        """Hears that a loss gets a target."""
        if self._follows() and readable(target) and target.dim() and len(target) >= _FEWEST_ROWS:
            self._targets.append((caller(), own(target)))

    def _follows(self) -> bool:
        return self.scene.updates < MOST_UPDATES

    def model_returned(self, model: nn.Module, args: Any, kwargs: Kwargs, output: Any) -> None:
        if torch.is_grad_enabled() and self._follows():
            given = [each for each in tensors((args, kwargs)) if readable(each) and each.dim()]
            self._inputs += [own(each) for each in given if not each.requires_grad]
            self._ways.add((id(model), *(each for each in (*args, *kwargs.values()) if isinstance(each, str | bool))))

    def backward_begins(self, losses: object) -> None:
        entered, self._inputs = self._inputs, []
        ways, self._ways = frozenset(self._ways), set()
        targets, self._targets = _both_ways_once(self._targets), []
        lines = Counter((where, len(target)) for where, target in targets)
        with aside():
            for where, target in targets:
                beside = [each for each in entered if len(each) == len(target)]
                mixed = any(_is_rearranged(target, other) for _, other in targets)
                if beside and lines[where, len(target)] == 1 and not mixed:  # a line called twice may see half a batch
                    self._pair((where, ways), beside, target)

    def update_ends(self, optimizer: Optimizer) -> None:
        self._guessed = set()

    def _pair(self, way: Way, entered: list[torch.Tensor], target: torch.Tensor) -> None:
        where = way[0]
        columns, theirs = [row_prints(each) for each in entered], row_prints(target)
        if theirs in columns:
            return  # the target is also an input
        if counts_places(target):
            self._judge(where, self._unlike(entered) if self._looks() else None)
            return
        handed_out = any(theirs in batch for batch in self._loaders.delivered)
        self._rising.see(where, entered, target, of_data=handed_out)
        self._columns.see(where, entered, target)
        followed = self._followed.setdefault(way, _Followed(where))
        followed.ambiguous |= len(target) in self._guessed
        if sum(each[0].numel() for each in entered) >= _FEWEST_ELEMENTS:
            self._follow(followed, [hash(row) for row in zip(*columns, strict=True)], theirs)
        if not followed.ambiguous:
            self._judge(where, self._in_delivered(columns, theirs))
            self._judge(where, self._in_arrays(entered, target) if self._looks() else None)

    def _follow(self, followed: _Followed, rows: list[int], targets: list[int]) -> None:
        if followed.update != self.scene.updates:
            followed.update, followed.in_update = self.scene.updates, {}
        twice = any(followed.in_update.setdefault(*each) != each[1] for each in zip(rows, targets, strict=True))
        followed.ambiguous |= twice
        for row, target in zip(rows, targets, strict=True):
            before = followed.known.get(row)
            followed.again += before is not None
            followed.exchanged += [(before, target)] if before is not None else []
            followed.differ += before not in (None, target)
            followed.foreign += before not in (None, target) and target not in followed.targets
        followed.known |= dict(zip(rows, targets, strict=True))
        followed.targets.update(targets)

    def _looks(self) -> bool:
        """Is this an update in which the arrays in sight are searched?"""
        return self.scene.updates in (1, 4, 7)

    def _unlike(self, entered: list[torch.Tensor]) -> bool | None:
        """Do paired inputs come from different rows of two arrays? None if they are not found."""
        arrays = Arrays()
        found = [each for column in entered for each in arrays.holding(column)]
        pairs = [(one, other) for (a, one) in found for (b, other) in found if a is not b and len(a) == len(b)]
        return not any(torch.equal(*each) for each in pairs) if pairs else None

    def _judge(self, where: str, apart: bool | None) -> None:
        self._apart += [where] if apart else []
        self._together += apart is False

    def _in_delivered(self, columns: list[list[int]], targets: list[int]) -> bool | None:
        """Are targets in another order than a loader yielded them with these inputs? None if it did not."""
        verdict = None
        for batch in reversed(self._loaders.delivered):
            order = next((found for mine in columns for each in batch if (found := _order(mine, each))), None)
            if order is None:
                continue
            alike = [each for each in batch if sorted(each) == sorted(targets)]
            if any([each[place] for place in order] == targets for each in alike):
                return False
            stale = any(targets in other for other in self._loaders.delivered if other is not batch)
            verdict = verdict or alike != [] or (stale and len(set(targets)) > 1) or None
        return verdict

    def _in_arrays(self, entered: list[torch.Tensor], target: torch.Tensor) -> bool | None:
        """Do targets come from other rows of the loop's arrays than inputs? None if some input is not found."""
        arrays, verdict = Arrays(), None
        found = [list(arrays.holding(each)) for each in entered]
        for each in found:
            for inputs, places in each:
                self.places.append((len(inputs), bool((places[1:] > places[:-1]).all())))
                for targets in arrays.beside(inputs, target):
                    if is_of(targets[places], target):
                        self.sources = self.sources or [(inputs, targets)]
                        return False
                    verdict = all(found) or None  # else the targets may belong to changed samples
        return verdict

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(
            parted=tuple(self._parted()),
            rising_targets=tuple(self._rising.lines()),
            told_by=tuple(self._columns.told()),
        )

    def _parted(self) -> Iterator[Parted]:
        """Where samples are separated from their targets, if they are."""
        if len(self._apart) >= max(2, 4 * self._together):
            yield Parted(self._apart[0], "inputs and targets come from different rows")
        for each in self._followed.values():
            if each.is_apart():
                seen = f"{each.differ} of {each.again} samples that came again had another sample's target"
                yield Parted(each.where, seen)


def _both_ways_once(targets: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """The targets, without those that count places again in the same line: pairs are often compared both ways."""
    kept: list[tuple[str, torch.Tensor]] = []
    with aside():
        for where, target in targets:
            known = [other for line, other in kept if line == where and other.shape == target.shape]
            if not any(torch.equal(target, other) and counts_places(target) for other in known):
                kept.append((where, target))
    return kept


def other_by_chance(values: list[Any]) -> float:
    """How often two of these values differ."""
    counts, total = Counter(values).values(), len(values)
    return 1 - sum((count / total) ** 2 for count in counts)


def _are_related(pairs: list[tuple[int, int]]) -> bool:
    """Does the first of each pair predict the second, as with clusters that are found and numbered again?"""
    drawn = random.Random(0)
    before, now = map(list, zip(*pairs, strict=True))
    found, chance = _agreement(before, now), []
    for _ in range(_SHUFFLES):
        drawn.shuffle(now)
        chance.append(_agreement(before, now))
    return found > statistics.mean(chance) + _BEYOND_CHANCE * (statistics.pstdev(chance) + 1)


def _agreement(before: list[int], now: list[int]) -> int:
    """How many pairs of samples agree in both."""
    return sum(count**2 for count in Counter(zip(before, now, strict=True)).values())


def is_of(own: torch.Tensor, target: torch.Tensor) -> bool:
    """Do targets belong to these samples, unchanged or renamed?"""
    pairs = list(zip(row_prints(own), row_prints(target), strict=True))
    wrong = sum(one != other for one, other in pairs)
    chance = other_by_chance([other for _, other in pairs])
    renamed = len(set(pairs)) == len({one for one, _ in pairs}) < len(pairs) / 2
    return renamed or wrong <= 0.5 * chance * len(pairs)


def _is_rearranged(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Are these the same targets in another order, as in mixup?"""
    if one.shape != other.shape or one.dtype != other.dtype or one.dim() != 1:
        return False
    return not torch.equal(one, other) and torch.equal(one.sort().values, other.sort().values)


def _order(mine: list[int], handed_out: list[int]) -> list[int] | None:
    """The place of each row in a yielded batch, if all rows are from there and no two are alike."""
    places = {row: place for place, row in enumerate(handed_out)}
    if len(places) != len(handed_out) or set(mine) != set(places):
        return None
    return [places[row] for row in mine]
