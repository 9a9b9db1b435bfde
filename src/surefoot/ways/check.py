"""check: runs a few tiny real steps of a recipe and finds silent bugs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from surefoot.checks.engine.attempts import noting_attempts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.samples import SampleFacts, Samples
from surefoot.checks.facts.saved_state import SavedStateFacts
from surefoot.checks.registry import run_checks
from surefoot.checks.samples.loader_use import Seen
from surefoot.checks.samples.reread import read_again
from surefoot.checks.text.narrow_tokens import TokenWidths
from surefoot.checks.watcher import Watcher
from surefoot.data.batches import batches_of
from surefoot.data.identity import identity_of
from surefoot.events.phases import Phases
from surefoot.randomness import kept
from surefoot.recipe.build import build_data, build_evaluation
from surefoot.recipe.kind import split_target
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.sources import is_source
from surefoot.records.finding import Findings
from surefoot.step import Step
from surefoot.techniques.deterministic import as_asked
from surefoot.training.init_from import with_first_weights
from surefoot.training.plain_state import PlainState, loss_of
from surefoot.world.world import TinyWorld

STEPS = 4


@as_asked
def check(recipe: Recipe, *, allow: Iterable[str] = ()) -> Findings:
    """Runs four steps of a few samples and reports bugs that raise no exception."""
    world = TinyWorld()
    small = with_first_weights(world.fit(recipe))
    batches = batches_of(small)
    with kept(), world:
        phases = Phases()
        watcher = Watcher(phases)
        watcher.scene.source = split_target(recipe.target)[0] if recipe.target else ""
        watcher.scene.tiny, watcher.scene.cut_from = True, recipe.micro_batch_size / small.micro_batch_size
        with phases, watcher:
            step = Step(small, world)
            plain = PlainState(step.model)
            phases.find(step.model)
            watcher.scene.optimizers += step.optimizers
            try:
                for _ in range(STEPS):
                    step(world.take(batches) for _ in range(small.micro_batches()))
            except RuntimeError:
                if all(backward.differentiable for backward in watcher.facts()[LoopFacts].backwards):
                    raise  # not the error that torch raises for a loss without a graph
        data = build_data(recipe)
        watcher[TokenWidths].look_at(data)
        with noting_attempts() as skipped:
            facts = watcher.facts()
            lost = () if recipe.loss is None else tuple(plain.lost(partial(loss_of, step, world.take(batches))))
            identity = identity_of(data, seed=recipe.seed_of_data, workers=recipe.loaders)
            saved, samples = facts[SavedStateFacts], facts[SampleFacts]
            facts = facts.having(
                replace(saved, lost_attributes=lost, unstable_samples=(identity.unstable, identity.items)),
                replace(samples, samples=(*samples.samples, *_samples(recipe, data, phases))),
            )
        return replace(run_checks(facts, recipe=recipe.name, allow=allow), skipped=tuple(skipped))


def _samples(recipe: Recipe, data: Dataset[Any], phases: Phases) -> Iterator[Samples]:
    """Reads the data again with the recipe's number of workers. A source has no samples to read."""
    if is_source(data):
        return

    def loader(data: Dataset[Any]) -> Seen:
        shuffle = None if isinstance(data, IterableDataset) else True  # surefoot shuffles a recipe's samples
        workers, collate = recipe.loaders, recipe.collate
        return Seen(DataLoader(data, recipe.micro_batch_size, shuffle, num_workers=workers, collate_fn=collate))

    held_out = None if recipe.evaluation is None else build_evaluation(recipe)
    evaluation = [] if held_out is None or is_source(held_out) else [loader(held_out)]
    yield read_again(loader(data), evaluation, phases)
