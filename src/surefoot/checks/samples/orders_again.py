"""Finds a shuffled order that comes again where the loader itself is new: rebuilt for every pass, or after a resume."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.samples.loader_use import Seen
from surefoot.checks.samples.same_data import are_same

REBUILT, RESUMED = (
    "a new loader for every pass begins alike",
    "the first pass after a resume begins like the very first",
)


class OrdersAgain(Observer):
    """Follows which training continues another one from a file."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._passes = self._saved_after = 0
        """How many training passes have ended, in all and when the last file was saved."""
        self._loaded = False
        """A file was loaded since the last update."""
        self._resumed: set[int] = set()
        """The trainings, named by the updates before them, that continue after at least one whole pass."""

    def __enter__(self) -> OrdersAgain:
        self.follow(Optimizer, "load_state_dict", after=self._restored)
        return self

    def pass_ended(self, seen: Seen) -> None:
        """Hears that a pass over a loader is over."""
        self._passes += seen.updates > 0

    def saving(self, contents: Contents, file: object) -> None:
        self._saved_after = self._passes

    def file_loaded(self, contents: Contents) -> None:
        self._loaded = True

    def _restored(self, *_: object, **__: object) -> None:
        if self._loaded and self._saved_after and self.scene.training:
            self._resumed.add(self.scene.training)

    def update_ends(self, optimizer: Optimizer) -> None:
        self._loaded = False

    def again(self, seen: Seen, others: list[Seen]) -> str:
        """How the order of a new loader repeats that of earlier ones over the same data; empty if it does not."""
        earlier = [
            each for each in others if each.until_update <= seen.from_update and each.from_update < seen.from_update
        ]
        earlier = [each for each in earlier if each.updates and _is_long(each)]
        if not earlier or not _is_long(seen):
            return ""
        earlier = [each for each in earlier if are_same(each.loader.dataset, seen.loader.dataset)]
        for training, firsts in seen.first_columns.items():
            same = [first for each in earlier for first in each.first_columns.get(training, [])]
            if same and firsts and set.intersection(*same, *firsts):
                return REBUILT
            before = [each.first_columns[n] for each in earlier for n in each.first_columns if n < training]
            if training in self._resumed and before and firsts and before[0] and before[0][0] & firsts[0]:
                return RESUMED
        return ""


def _is_long(seen: Any) -> bool:
    """Does a pass have more than one batch? Otherwise there is no order."""
    return bool(seen.batches >= 2 * seen.passes)
