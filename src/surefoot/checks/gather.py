"""Gathers what the observers have seen into the facts that rules are given."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.attempts import attempt
from surefoot.checks.engine.living import living
from surefoot.checks.engine.rerun import Again
from surefoot.checks.engine.scene import held
from surefoot.checks.evaluation.batch_averages import BatchAverages
from surefoot.checks.evaluation.forwards import Evaluations
from surefoot.checks.evaluation.passes import Passes
from surefoot.checks.evaluation.thresholds import Thresholds
from surefoot.checks.facts import Facts
from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.loop import LoopFacts
from surefoot.checks.facts.losses import LossFacts
from surefoot.checks.facts.models import IgnoredArgument, ModelFacts, Parameter, Tuning
from surefoot.checks.facts.precision import PrecisionFacts
from surefoot.checks.facts.ranks import RankFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.saved_state import File, SavedStateFacts
from surefoot.checks.facts.text import TextFacts
from surefoot.checks.facts.updates import UpdateFacts
from surefoot.checks.gradients.custom_backward import derivatives_of
from surefoot.checks.gradients.custom_functions import CustomFunctions
from surefoot.checks.gradients.data_writes import DataWrites
from surefoot.checks.gradients.detached_draws import DetachedDraws
from surefoot.checks.gradients.recomputation import Recomputations
from surefoot.checks.loop.crossed_dimensions import CrossedDimensions
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.loop.kept_graphs import KeptGraphs
from surefoot.checks.loop.loose_leaves import LooseLeaves
from surefoot.checks.loop.optimizers import Optimizers
from surefoot.checks.loop.origins import origin
from surefoot.checks.losses.empty_masks import EmptyMasks
from surefoot.checks.losses.functional import FunctionalLosses
from surefoot.checks.losses.known_terms import KnownTerms
from surefoot.checks.losses.likelihoods import Likelihoods
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.losses.noise_targets import NoiseTargets
from surefoot.checks.losses.push_direction import PushDirections
from surefoot.checks.losses.reductions import Reductions
from surefoot.checks.losses.terms import LossTerms
from surefoot.checks.models.adapters import Adapters
from surefoot.checks.models.disturb_arguments import ignored_arguments
from surefoot.checks.models.disturb_inputs import matters, probe
from surefoot.checks.models.first_inputs import FirstInputs
from surefoot.checks.models.fixed_networks import FixedNetworks
from surefoot.checks.models.hidden_modules import HiddenModules
from surefoot.checks.models.layout import Layouts
from surefoot.checks.models.loss_modules import LossModules
from surefoot.checks.models.merged_adapters import MergedAdapters
from surefoot.checks.models.random_tables import RandomTables
from surefoot.checks.models.sample_mixing import Batches
from surefoot.checks.models.shadow_networks import ShadowNetworks
from surefoot.checks.precision.coarse_numbers import CoarseNumbers
from surefoot.checks.precision.scaling import GradientScaling
from surefoot.checks.ranks.comparison import RankComparison
from surefoot.checks.ranks.shard_files import ShardFiles
from surefoot.checks.samples.index_pairs import IndexPairs
from surefoot.checks.samples.labels import look_at_arrays
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.orders import Orders
from surefoot.checks.samples.pairs import Pairs
from surefoot.checks.samples.reread import samples_of
from surefoot.checks.samples.reseeding import Reseeding
from surefoot.checks.samples.rows import Rows
from surefoot.checks.samples.scaled_together import ScaledTogether
from surefoot.checks.samples.unseeded_draws import UnseededDraws
from surefoot.checks.samples.windows import Windows
from surefoot.checks.saved_state.file_counters import FileCounters
from surefoot.checks.saved_state.files import Files
from surefoot.checks.saved_state.generator_states import GeneratorStates
from surefoot.checks.saved_state.lost_moments import LostMoments
from surefoot.checks.saved_state.object_counters import ObjectCounters
from surefoot.checks.saved_state.shared_weights import SharedWeights
from surefoot.checks.source.rows_apart import ordered_apart, reorders
from surefoot.checks.text.lenient_masks import LenientMasks
from surefoot.checks.text.narrow_tokens import TokenWidths
from surefoot.checks.text.token_targets import Reading, read
from surefoot.checks.text.trained_texts import TrainedTexts
from surefoot.checks.updates.by_hand import UpdatesByHand
from surefoot.checks.updates.clipping import Clipping
from surefoot.checks.updates.schedules import Schedules

if TYPE_CHECKING:
    from surefoot.checks.watcher import Watcher


def gathered(watcher: Watcher, *, probes: bool) -> Facts:
    """Collects the facts seen so far. With `probes`, also disturbs copies of models and data sets."""
    if probes:
        _find_optimizers(watcher)
    watcher.bus.settle()
    loop, evaluation = _loop(watcher), _evaluation(watcher, probes=probes)
    samples, gradients = _samples(watcher, probes=probes), _gradients(watcher, probes=probes)
    models, text = _models(watcher, probes=probes), _text(watcher)
    if probes:
        models, text = _probed(watcher, models, text, repeats=any(each.repeated for each in evaluation.evaluations))
    return Facts(
        loop,
        evaluation,
        samples,
        gradients,
        models,
        text,
        _losses(watcher),
        _updates(watcher),
        _precision(watcher),
        _saved_state(watcher),
        RankFacts(ranks=watcher[RankComparison].ranks(), shared_files=tuple(watcher[ShardFiles].files())),
    )


def _loop(watcher: Watcher) -> LoopFacts:
    gradients = watcher[Gradients]
    return LoopFacts(
        forwards=tuple(watcher[Forwards].forwards),
        backwards=tuple(gradients.backwards),
        updates=tuple(gradients.updates),
        optimizers=tuple(watcher[Optimizers].optimizers()),
        weights_by_hand=gradients.moved_by_hand,
        ended=watcher.scene.ended,
    )


def _losses(watcher: Watcher) -> LossFacts:
    return LossFacts(
        losses=tuple(watcher[Losses].losses),
        aims=tuple(watcher[PushDirections].aims),
        likelihoods=tuple(watcher[Likelihoods].likelihoods),
        reductions=tuple(watcher[Reductions].reductions),
        terms=tuple(watcher[LossTerms].terms),
        flat_lines=tuple(line for line, count in watcher[LossTerms].flat.items() if count >= 3),
        emptied_lines=watcher[EmptyMasks].lines(),
        known=watcher[KnownTerms].known(),
    )


def _text(watcher: Watcher) -> TextFacts:
    return TextFacts(
        lenient_masks=watcher[LenientMasks].lines(),
        narrow_tokens=tuple(watcher[TokenWidths].found()),
        trained_texts=tuple(watcher[TrainedTexts].texts()),
    )


def _models(watcher: Watcher, *, probes: bool) -> ModelFacts:
    return ModelFacts(
        parameters=tuple(_parameters(watcher, probes=probes)),
        hidden_modules=tuple(watcher[HiddenModules].modules()),
        leaves=tuple(watcher[LooseLeaves].leaves()),
        layouts=tuple(watcher[Layouts].layouts()),
        crossings=(*watcher[CrossedDimensions].crossings.values(), *watcher[Losses].misdirected()),
        shadows=tuple(watcher[ShadowNetworks].shadows()),
        fixed_networks=tuple(watcher[FixedNetworks].networks()),
        adapters=tuple(watcher[Adapters].adapters()),
        merges=tuple(watcher[MergedAdapters].merges.values()),
        tunings=tuple(_tunings(watcher)),
    )


def _gradients(watcher: Watcher, *, probes: bool) -> GradientFacts:
    return GradientFacts(
        discards=tuple(watcher[Gradients].discards()),
        drawn_without_gradient=watcher[DetachedDraws].lines(),
        recomputations=tuple(watcher[Recomputations].differing.values()),
        kept_graphs=watcher[KeptGraphs].most,
        written_through_data=tuple(watcher[DataWrites].lines),
        derivatives=tuple(derivatives_of(watcher[CustomFunctions].calls, watcher.scene.phases)) if probes else (),
        derivatives_in_losses=watcher[FunctionalLosses].derivatives,
    )


def _updates(watcher: Watcher) -> UpdateFacts:
    return UpdateFacts(
        clips=tuple(watcher[Clipping].clips),
        schedules=tuple(watcher[Schedules].schedules()),
        unused_limits=watcher[UpdatesByHand].unused(),
        carried_by_hand=watcher[UpdatesByHand].carried,
        benchmarks_kernels=torch.backends.cudnn.benchmark and _asks_for_same_bits(),
        idle_accelerator=_idle_accelerator(watcher),
    )


def _precision(watcher: Watcher) -> PrecisionFacts:
    bfloat16 = any(each.trained for each in watcher[Forwards].in_bfloat16)
    return PrecisionFacts(
        coarse=tuple(watcher[CoarseNumbers].coarse.values()),
        scaling=watcher[GradientScaling].scaling(bfloat16=bfloat16),
    )


def _samples(watcher: Watcher, *, probes: bool) -> SampleFacts:
    loaders = tuple(watcher[Loaders].loaders())
    seen = SampleFacts(
        loaders=loaders,
        inputs=tuple(watcher[FirstInputs].inputs),
        parted=(*watcher[IndexPairs].parted(), *watcher[Pairs].parted(), *watcher[NoiseTargets].parted()),
        rising_targets=tuple(watcher[Pairs].rising.lines()),
        shown=tuple(watcher[Rows].seen()),
        told_by=tuple(watcher[Pairs].columns.told()),
        overlaps=watcher[Windows].overlaps(),
        scaled_together=watcher[ScaledTogether].found(),
        part_of=watcher[Rows].part_of(),
        shuffled_once=watcher[Orders].shuffled_once(),
        reseeded_updates=watcher[Reseeding].repeated(),
        unseeded_generators=watcher[UnseededDraws].unseeded(),
    )
    if not probes:
        return seen
    arrays = (look_at_arrays(*each) for each in watcher[Pairs].sources if not loaders)
    return replace(
        seen,
        samples=(*samples_of(watcher[Loaders], watcher[Losses].target_prints), *arrays),
        ordered_apart=tuple(ordered_apart(watcher.scene.source)),
        reorders=reorders(watcher.scene.source),
    )


def _evaluation(watcher: Watcher, *, probes: bool) -> EvaluationFacts:
    return EvaluationFacts(
        evaluations=tuple(watcher[Evaluations].seen),
        passes=tuple(watcher[Passes].passes()),
        thresholds=tuple(watcher[Thresholds].thresholds.values()),
        metrics=tuple(watcher[BatchAverages].metrics()) if probes else (),
    )


def _saved_state(watcher: Watcher) -> SavedStateFacts:
    return SavedStateFacts(
        files=tuple(_files(watcher)),
        resumptions=tuple(watcher[FileCounters].resumptions()),
        held_counters=tuple(watcher[ObjectCounters].off),
        lost_states=tuple(watcher[GeneratorStates].lost()),
    )


def _files(watcher: Watcher) -> Iterator[File]:
    yield from watcher[Files].files(schedulers=any(each.calls for each in watcher[Schedules].seen.values()))
    yield from watcher[SharedWeights].files
    yield from watcher[LostMoments].files()


def _idle_accelerator(watcher: Watcher) -> str:
    devices = {each.device.type for each in watcher.scene.names()}
    return str(torch.accelerator.current_accelerator(check_available=True) or "") if devices == {"cpu"} else ""


def _find_optimizers(watcher: Watcher) -> None:
    """Finds optimizers that hold parameters of models that ran, even if they never made an update."""
    known = {*watcher.scene.reached, *watcher.scene.names()}
    for each in living(Optimizer):
        if each not in watcher.scene.optimizers and known.intersection(held(each)):
            watcher.scene.optimizers.append(each)


def _probed(watcher: Watcher, models: ModelFacts, text: TextFacts, *, repeats: bool) -> tuple[ModelFacts, TextFacts]:
    """Adds what models do when their inputs are disturbed."""
    captured = watcher[Forwards].captured.values()
    readings = [read(watcher.scene, each, watcher[Losses].targets) for each in captured if each.used]
    own = [each.call.model for each in readings]
    layouts, chance = watcher[Layouts], watcher[RandomTables]
    built = [(layouts.first_numbers(each), chance.of(each), layouts.lost_state(each)) for each in own]
    aimed = frozenset(each.model for each in watcher[PushDirections].aims if each.constant is None)
    batches = Batches(functools.partial(_are_drawn, watcher), aimed)
    probes = tuple(
        probe(watcher.scene, each, watcher[Losses], repeats, *numbers, batches)
        for each, numbers in zip(readings, built, strict=True)
    )
    sequences = tuple(each.sequence for each in readings if each.sequence is not None)
    ignored = (*_ignored_by_models(watcher, readings), *_ignored_by_losses(watcher))
    return replace(models, probes=probes, ignored_arguments=ignored), replace(text, sequences=sequences)


def _ignored_by_models(watcher: Watcher, readings: list[Reading]) -> Iterator[IgnoredArgument]:
    for each in readings:
        if each.again is not None:
            yield from ignored_arguments(watcher.scene, each.again, watcher.scene.name(each.call.model))


def _ignored_by_losses(watcher: Watcher) -> Iterator[IgnoredArgument]:
    for call in watcher[LossModules].calls:
        name = type(call.model).__name__
        with attempt(f"copying {name}"):
            yield from ignored_arguments(watcher.scene, Again(watcher.scene, call), name, of_loss=True)


def _are_drawn(watcher: Watcher, rows: int) -> bool:
    """Are the samples of batches of this size drawn one by one, as in a recipe?"""
    return (
        watcher.scene.tiny or watcher[Loaders].draws(rows) or any(not in_order for _, in_order in watcher[Pairs].places)
    )


def _parameters(watcher: Watcher, *, probes: bool) -> Iterator[Parameter]:
    optimized, reached, trained = watcher.scene.optimized(), watcher.scene.reached, watcher.scene.trained
    taught = reached - watcher.scene.penalized
    unused = {leaf: loss.where for loss, leaves in watcher[Losses].unused if not loss.weights for leaf in leaves}
    for model, prefix in watcher.scene.phases.models.items():
        ran = {p for m in model.modules() if m in watcher[Forwards].executed for p in m.parameters(recurse=False)}
        resting = {p for m in model.modules() if m in watcher[Forwards].resting for p in m.parameters(recurse=False)}
        tested: dict[torch.Tensor, bool] = {}
        lone = {p for p in ran if (p.requires_grad or p in trained) and p in optimized and p not in taught}
        if model in watcher[Forwards].feeding:
            tested = dict.fromkeys(lone, True)
        elif probes and lone and model in watcher[Forwards].captured:
            tested = matters(watcher.scene, watcher[Forwards].captured[model], list(lone))
        for name, p in model.named_parameters():
            yield Parameter(
                prefix + name,
                watcher.scene.name(model),
                p.requires_grad or p in trained,
                p in reached,
                p in optimized,
                executed=p in ran,
                in_loss=tested.get(p),
                elements=p.numel(),
                follows=p in watcher[Gradients].followers,
                penalized=p in watcher.scene.penalized,
                only_in=unused.get(p, "") if p not in reached else "",
                moved=((p in lone and p not in reached) or p not in optimized) and watcher[Forwards].moved(p),
                resting=p in resting,
            )


def _tunings(watcher: Watcher) -> Iterator[Tuning]:
    """What each optimizer trains of models whose first weights came from elsewhere, or of adapters."""
    thin, trained = watcher[Adapters].trained(), watcher.scene.trained
    for number, optimizer in enumerate(watcher.scene.optimizers):
        own = {each for each in held(optimizer) if each in trained}
        for model in watcher.scene.phases.models:
            whole = [each for each in model.parameters() if each in own]
            elements = sum(each.numel() for each in whole)
            if thin & own and 2 * sum(each.numel() for each in thin & own) >= sum(each.numel() for each in own):
                yield Tuning(number, watcher.scene.name(model), "adapters")
                break
            if 2 * elements >= sum(each.numel() for each in model.parameters()) and elements and origin(model):
                yield Tuning(number, watcher.scene.name(model), "all weights")
                break


def _asks_for_same_bits() -> bool:
    return torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
