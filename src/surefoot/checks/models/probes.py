"""Disturbs copies of the models and losses that ran, to see what their outputs depend on."""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.rerun import Again
from surefoot.checks.engine.scene import Scene
from surefoot.checks.evaluation.forwards import Evaluations
from surefoot.checks.facts.models import IgnoredArgument, ModelFacts, Probe
from surefoot.checks.facts.text import TextFacts
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.losses.push_direction import PushDirections
from surefoot.checks.models.disturb_arguments import ignored_arguments
from surefoot.checks.models.disturb_inputs import probe
from surefoot.checks.models.layout import Layouts
from surefoot.checks.models.loss_modules import LossModules
from surefoot.checks.models.random_tables import RandomTables
from surefoot.checks.models.sample_mixing import Batches
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.pairs import Pairs
from surefoot.checks.text.token_targets import Reading, read


class Probes(Observer):
    """Repeats a recorded forward of each trained model, and of each loss of the user's, with one thing changed."""

    def __init__(
        self,
        scene: Scene,
        forwards: Forwards,
        evaluations: Evaluations,
        losses: Losses,
        pushes: PushDirections,
        modules: LossModules,
        layouts: Layouts,
        tables: RandomTables,
        loaders: Loaders,
        pairs: Pairs,
    ) -> None:
        super().__init__(scene)
        self._forwards, self._evaluations, self._losses, self._pushes = forwards, evaluations, losses, pushes
        self._modules, self._layouts, self._tables = modules, layouts, tables
        self._loaders, self._pairs = loaders, pairs

    def probed(self) -> Iterator[ModelFacts | TextFacts]:
        captured = (each for each in self._forwards.captured.values() if each.used)
        readings = [read(self.scene, each, self._losses.targets) for each in captured]
        yield TextFacts(sequences=tuple(each.sequence for each in readings if each.sequence is not None))
        yield ModelFacts(probes=tuple(self._probes(readings)))
        ignored = (*self._ignored_by_models(readings), *self._ignored_by_losses())  # last: it shakes the copies
        yield ModelFacts(ignored_arguments=ignored)

    def _probes(self, readings: list[Reading]) -> Iterator[Probe]:
        repeats = any(each.repeated for each in self._evaluations.seen)
        aimed = frozenset(each.model for each in self._pushes.aims if each.constant is None)
        batches = Batches(self._are_drawn, aimed)
        for reading in readings:
            model = reading.call.model
            first, lost = self._layouts.first_numbers(model), self._layouts.lost_state(model)
            yield probe(self.scene, reading, self._losses, repeats, first, self._tables.of(model), lost, batches)

    def _are_drawn(self, rows: int) -> bool:
        """Are the samples of batches of this size drawn one by one, as in a recipe?"""
        out_of_order = any(not in_order for _, in_order in self._pairs.places)
        return self.scene.tiny or self._loaders.draws(rows) or out_of_order

    def _ignored_by_models(self, readings: list[Reading]) -> Iterator[IgnoredArgument]:
        for each in readings:
            if each.again is not None:
                yield from ignored_arguments(self.scene, each.again, self.scene.name(each.call.model))

    def _ignored_by_losses(self) -> Iterator[IgnoredArgument]:
        for call in self._modules.calls:
            name = type(call.model).__name__
            with attempt(f"copying {name}"):
                yield from ignored_arguments(self.scene, Again(self.scene, call), name, of_loss=True)
