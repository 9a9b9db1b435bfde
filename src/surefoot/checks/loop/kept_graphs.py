"""Counts back-propagated graphs that are still alive several updates later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph, unscaled
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.loop.backwards import Backwards
from surefoot.checks.loop.forwards import Forwards, Sentinel

_OLD = 3
"""A graph should be freed this many updates after its backward."""
_COLLECTIONS = 8
"""The most garbage collections, which show whether something besides a cycle keeps a graph."""
_KEPT = "surefoot kept"


class KeptGraphs(Observer):
    """Puts a sentinel into each graph, which shows whether the graph still exists."""

    after = (Forwards, Backwards)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.most = 0
        """The most old graphs that existed at once."""
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
        """The number of old graphs that still exist and are not waiting for garbage collection."""
        if self.most < 2 <= self._old() and self._collections:
            self._collections -= 1
            gc.collect()
        return self._old() if self._collections else 0

    def _old(self) -> int:
        """The number of graphs of this training that should be freed by now. Forgets graphs that are gone.

        Variables of an earlier training may hold the graphs of its last step. These do not grow in number.
        """
        self._sentinels = [each for each in self._sentinels if each[1]() is not None]
        return sum(self.scene.training <= update <= self.scene.updates - _OLD for update, _ in self._sentinels)

    def facts(self) -> Iterator[GradientFacts]:
        yield GradientFacts(kept_graphs=self.most)
