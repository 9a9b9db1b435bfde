"""Reads the data sets and arrays of a training once more, and how the source orders their rows."""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.samples import SampleFacts, Samples
from surefoot.checks.samples.labels import look_at_arrays
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.pairs import Pairs
from surefoot.checks.samples.reread import read_again
from surefoot.checks.samples.rows_apart import ordered_apart, reorders


class DataSets(Observer):
    """Reads what training loaders read. Without a loader, reads the arrays that samples are taken from."""

    def __init__(self, scene: Scene, loaders: Loaders, pairs: Pairs) -> None:
        super().__init__(scene)
        self._loaders, self._pairs = loaders, pairs

    def probed(self) -> Iterator[SampleFacts]:
        arrays = [] if self._loaders.seen else self._pairs.sources
        yield SampleFacts(
            samples=(*self._behind_loaders(), *(look_at_arrays(*each) for each in arrays)),
            ordered_apart=tuple(ordered_apart(self.scene.source)),
            reorders=reorders(self.scene.source),
        )

    def _behind_loaders(self) -> Iterator[Samples]:
        evaluating = [seen for seen in self._loaders.seen.values() if seen.role == "evaluation"]
        for seen in list(self._loaders.seen.values()):
            if seen.role == "training":
                others = [each for each in evaluating if each.trainings & seen.trainings]
                labelled = seen.ends_with_labels(self._pairs.target_prints)
                yield read_again(seen, others, self.scene.phases, labelled=labelled)
