"""Counts back-propagated graphs that are still alive several updates later."""

from __future__ import annotations

import gc
import weakref

from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph, unscaled
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.loop.backwards import Backwards
from surefoot.checks.loop.forwards import Forwards, Sentinel

_OLD = 3
"""A graph should be gone so many updates after its backward."""
_COLLECTIONS = 8
"""Garbage is collected so often at most, to see whether a graph is kept by more than itself."""
_KEPT = "surefoot kept"


class KeptGraphs(Observer):
    """A sentinel in each graph says whether it still exists."""

    after = (Forwards, Backwards)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.most = 0
        """The most that existed at once."""
        self._sentinels: list[tuple[int, weakref.ref[Sentinel]]] = []
        self._collections = _COLLECTIONS

    def graph_seen(self, graph: Graph) -> None:
        for root in map(unscaled, graph.roots):
            sentinel = Sentinel()
            if not graph.asked:
                root.metadata["surefoot"] = sentinel
            self._sentinels.append((self.scene.updates, weakref.ref(sentinel)))
            for node in graph.lowest:
                node.metadata[_KEPT] = sentinel

    def update_ends(self, optimizer: Optimizer) -> None:
        self.most = max(self.most, self._kept())

    def _kept(self) -> int:
        """How many graphs outlive the updates after them, and are no garbage that waits to be collected."""
        if self.most < 2 <= self._old() and self._collections:
            self._collections -= 1
            gc.collect()
        return self._old() if self._collections else 0

    def _old(self) -> int:
        """How many graphs of this training are older than they should become; those that are gone are forgotten.

        Variables of a training before hold the graphs of its last step: these do not grow in number.
        """
        self._sentinels = [each for each in self._sentinels if each[1]() is not None]
        return sum(self.scene.training <= update <= self.scene.updates - _OLD for update, _ in self._sentinels)
