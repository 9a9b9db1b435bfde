"""Compares step counters in checkpoints with where a resumed run continues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.file_contents import Contents, Counts
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.saved_state import Resumption, SavedStateFacts
from surefoot.checks.samples.loaders import Loaders
from surefoot.events.callers import caller


@dataclass
class _Loaded:
    """A loaded file with counters, and what came after it."""

    counts: Counts
    update: int
    where: str
    batches: int
    """The number of batches that loaders had returned by then."""
    restored: bool = False
    """An optimizer loaded its state before the next update."""
    saved: list[tuple[int, Counts]] = field(default_factory=list)
    skipped: int | None = None
    """Batches that were skipped before the first forward."""


class FileCounters(Observer):
    """Compares the counters that a loop saves with those it loads."""

    after = (Loaders,)
    stays = True

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self._saved: list[tuple[int, Counts]] = []
        self._loaded: list[_Loaded] = []
        self._saved_at = -1
        """The number of updates when a file with counters was last written."""

    def __enter__(self) -> FileCounters:
        self.follow(Optimizer, "load_state_dict", after=self._restores)
        return self

    def saving(self, contents: Contents, file: object) -> None:
        if counts := contents.counts:
            written = self._loaded[-1].saved if self._loaded else self._saved
            written.append((self.scene.updates, counts))
            self._saved_at = self.scene.updates

    def file_loaded(self, contents: Contents) -> None:
        if counts := contents.counts:
            self._loaded.append(_Loaded(counts, self.scene.updates, caller(), self._loaders.handed_out))

    def _restores(self, _: object, optimizer: Optimizer, *__: object, **___: object) -> None:
        """Training resumes, unless the optimizer has made updates since the file: then it only returns to the best
        weights.
        """
        goes_on = not self.scene.updates_of(optimizer) or self._saved_at == self.scene.updates
        if goes_on and self._loaded and self._loaded[-1].update == self.scene.updates:
            self._loaded[-1].restored = True

    def model_called(self, model: nn.Module, args: Args) -> None:
        if self._loaded and self._loaded[-1].skipped is None and torch.is_grad_enabled():
            self._loaded[-1].skipped = self._loaders.handed_out - self._loaded[-1].batches - 1

    def facts(self) -> Iterator[SavedStateFacts]:
        yield SavedStateFacts(resumptions=tuple(self._resumptions()))

    def _resumptions(self) -> Iterator[Resumption]:
        for loaded in self._loaded:
            if not loaded.restored:
                continue  # perhaps weights to inspect, not a resumed run
            for name, was in loaded.counts.items():
                found = Resumption(loaded.where, name, was, skipped=loaded.skipped or 0)
                rate = self._rate(name)
                if rate is not None:
                    found.in_epoch = self._place_in_epoch(was) if rate == 1 else 0
                    found.saved, found.expected = _next(loaded, name, rate)
                yield found

    def _rate(self, name: str) -> Fraction | None:
        """How much a counter grows per update, if all saved files agree; otherwise None."""
        rates = {
            Fraction(later[name] - earlier[name], there - here)
            for series in (self._saved, *(each.saved for each in self._loaded))
            for (here, earlier), (there, later) in pairwise(series)
            if there > here and name in earlier and name in later
        }
        return rates.pop() if len(rates) == 1 else None

    def _place_in_epoch(self, updates: int) -> int:
        epoch = self._loaders.training_epoch()
        return updates % epoch if epoch else 0


def _next(loaded: _Loaded, name: str, rate: Fraction) -> tuple[int | None, int | None]:
    """The counter in the first file after a resume, and its expected value. None if updates make no whole count."""
    for update, counts in loaded.saved:
        grown = rate * (update - loaded.update)
        if grown > 0 and name in counts:
            return (counts[name], loaded.counts[name] + int(grown)) if grown.denominator == 1 else (None, None)
    return None, None
