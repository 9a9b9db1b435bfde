"""Tests whether a loop without a DataLoader uses one shuffled order for all epochs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprint, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.samples.pairs import Pairs

_MOST_UPDATES = 100
_FEWEST_AGAIN = 3
"""At least this many batches must repeat, in order."""
_READ = 256
_WHOLE = 0.9
"""A pass over this share of an array's rows is a pass over all; a smaller part was split off once."""


class Orders(Observer):
    """Records the first batch of each update, by some of its values."""

    after = (Pairs,)

    def __init__(self, scene: Scene, pairs: Pairs) -> None:
        super().__init__(scene)
        self._pairs = pairs
        self._batches: dict[int, tuple[int, int]] = {}
        """By update: the hash of its first batch, and its number of samples."""

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if not torch.is_grad_enabled() or self.scene.updates >= _MOST_UPDATES or self.scene.updates in self._batches:
            return
        given = [each for each in tensors((args, kwargs)) if readable(each) and each.dim() and not each.requires_grad]
        if given:
            largest = max(given, key=lambda each: each.numel())
            self._batches[self.scene.updates] = fingerprint(HOST.nearest(largest), _READ), len(largest)

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(shuffled_once=self._shuffled_once())

    def _shuffled_once(self) -> int:
        """The number of rows that every pass reads in the same shuffled order; 0 if there is no such order."""
        prints, sizes = zip(*self._batches.values(), strict=True) if self._batches else ((), ())
        period = prints.index(prints[0], 1) if prints.count(prints[0] if prints else 0) > 1 else 0
        again = prints[period:]
        if period < 2 or len(again) < _FEWEST_AGAIN or again != prints[: len(again)]:
            return 0
        rows = sum(sizes[:period])
        found = [in_order for length, in_order in self._pairs.places if rows > _WHOLE * length]
        return rows if found and not any(in_order for _, in_order in self._pairs.places) else 0
