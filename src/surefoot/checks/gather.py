"""Gathers what the observers have seen into the facts that rules are given."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.scene import held
from surefoot.checks.evaluation.batch_averages import Averages
from surefoot.checks.evaluation.forwards import Evaluations
from surefoot.checks.evaluation.passes import Passes
from surefoot.checks.evaluation.thresholds import Thresholds
from surefoot.checks.facts import Evidence, File, Parameter
from surefoot.checks.gradients.custom_backward import derivatives_of
from surefoot.checks.gradients.custom_functions import Custom
from surefoot.checks.gradients.data_writes import Aliases
from surefoot.checks.gradients.detached_draws import Drawn
from surefoot.checks.gradients.recomputation import Recomputed
from surefoot.checks.loop.crossed_dimensions import Shapes
from surefoot.checks.loop.forwards import Calls
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.losses.empty_masks import Emptied
from surefoot.checks.losses.functional import Transforms
from surefoot.checks.losses.likelihoods import Likelihoods
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.losses.noise_targets import Noise
from surefoot.checks.losses.push_direction import Aims
from surefoot.checks.losses.reductions import Reductions
from surefoot.checks.losses.terms import Terms
from surefoot.checks.models.disturb_inputs import matters, probe
from surefoot.checks.models.first_inputs import FirstLayers
from surefoot.checks.models.hidden_modules import Hidden
from surefoot.checks.models.layout import Layouts
from surefoot.checks.models.random_tables import Chance
from surefoot.checks.models.sample_mixing import Batches
from surefoot.checks.precision.coarse_numbers import Coarseness
from surefoot.checks.precision.scaling import Scaled
from surefoot.checks.ranks.comparison import Between
from surefoot.checks.ranks.shard_files import SavedShards
from surefoot.checks.samples.index_pairs import Picks
from surefoot.checks.samples.labels import look_at_arrays
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.orders import Orders
from surefoot.checks.samples.pairs import Pairs
from surefoot.checks.samples.reread import samples_of
from surefoot.checks.samples.reseeding import Seeds
from surefoot.checks.samples.rows import Rows
from surefoot.checks.samples.unseeded_draws import Draws
from surefoot.checks.saved_state.file_counters import Resumes
from surefoot.checks.saved_state.files import Files
from surefoot.checks.saved_state.generator_states import Generators
from surefoot.checks.saved_state.lost_moments import Forgotten
from surefoot.checks.saved_state.object_counters import HeldCounters
from surefoot.checks.saved_state.shared_weights import Kept
from surefoot.checks.source.rows_apart import ordered_apart, reorders
from surefoot.checks.text.lenient_masks import Masked
from surefoot.checks.text.narrow_tokens import Narrow
from surefoot.checks.text.token_targets import read
from surefoot.checks.updates.by_hand import ByHand
from surefoot.checks.updates.clipping import Clipping
from surefoot.checks.updates.schedules import Schedules

if TYPE_CHECKING:
    from surefoot.checks.watcher import Watcher


def told(watcher: Watcher, *, probes: bool) -> Evidence:
    """What was seen so far; with `probes`, models and data sets are disturbed on copies, too."""
    if probes:
        _find_optimizers(watcher)
    watcher.settle()
    evidence = Evidence(
        hidden_modules=tuple(watcher[Hidden].modules()),
        leaves=tuple(watcher[Gradients].leaves()),
        forwards=tuple(watcher[Calls].forwards),
        evaluations=tuple(watcher[Evaluations].seen),
        backwards=tuple(watcher[Gradients].backwards),
        updates=tuple(watcher[Gradients].updates),
        optimizers=tuple(watcher[Gradients].optimizers()),
        losses=tuple(watcher[Losses].losses),
        aims=tuple(watcher[Aims].aims),
        likelihoods=tuple(watcher[Likelihoods].likelihoods),
        reductions=tuple(watcher[Reductions].reductions),
        terms=tuple(watcher[Terms].terms),
        emptied_lines=watcher[Emptied].lines(),
        lenient_masks=watcher[Masked].lines(),
        flat_lines=tuple(line for line, count in watcher[Terms].flat.items() if count >= 3),
        discards=tuple(watcher[Gradients].discards()),
        clips=tuple(watcher[Clipping].clips),
        drawn_without_gradient=watcher[Drawn].lines(),
        carried_by_hand=watcher[ByHand].carried,
        unused_limits=watcher[ByHand].unused(),
        schedules=tuple(watcher[Schedules].schedules()),
        loaders=tuple(watcher[Loaders].loaders()),
        inputs=tuple(watcher[FirstLayers].inputs),
        layouts=tuple(watcher[Layouts].layouts()),
        crossings=(*watcher[Shapes].crossings.values(), *watcher[Losses].misdirected()),
        coarse=tuple(watcher[Coarseness].coarse.values()),
        thresholds=tuple(watcher[Thresholds].thresholds.values()),
        scaling=watcher[Scaled].scaling(
            bfloat16=any(each.bfloat16 and each.trained for each in watcher[Calls].forwards)
        ),
        files=tuple(_files(watcher)),
        recomputations=tuple(watcher[Recomputed].differing.values()),
        ranks=watcher[Between].ranks(),
        parted=(*watcher[Picks].parted(), *watcher[Pairs].parted(), *watcher[Noise].parted()),
        rising_targets=tuple(watcher[Pairs].rising.lines()),
        shown=tuple(watcher[Rows].seen()),
        passes=tuple(watcher[Passes].passes()),
        narrow_tokens=tuple(watcher[Narrow].found()),
        part_of=watcher[Rows].part_of(),
        shuffled_once=watcher[Orders].shuffled_once(),
        reseeded_updates=watcher[Seeds].repeated(),
        unseeded_generators=watcher[Draws].unseeded(),
        benchmarks_kernels=torch.backends.cudnn.benchmark and _asks_for_same_bits(),
        idle_accelerator=_idle_accelerator(watcher),
        resumptions=tuple(watcher[Resumes].resumptions()),
        held_counters=tuple(watcher[HeldCounters].off),
        lost_states=tuple(watcher[Generators].lost()),
        shared_files=tuple(watcher[SavedShards].files()),
        derivatives_in_losses=watcher[Transforms].derivatives,
        kept_graphs=watcher[Gradients].kept_graphs,
        written_through_data=tuple(watcher[Aliases].lines),
        weights_by_hand=watcher[Gradients].moved_by_hand,
        ended=watcher.scene.ended,
    )
    evidence.parameters = tuple(_parameters(watcher, probes=probes))
    if probes:
        _probe(watcher, evidence)
    return evidence


def _files(watcher: Watcher) -> Iterator[File]:
    yield from watcher[Files].files(schedulers=any(each.calls for each in watcher[Schedules].seen.values()))
    yield from watcher[Kept].files
    yield from watcher[Forgotten].files()


def _idle_accelerator(watcher: Watcher) -> str:
    devices = {each.device.type for each in watcher.scene.names()}
    return str(torch.accelerator.current_accelerator(check_available=True) or "") if devices == {"cpu"} else ""


def _find_optimizers(watcher: Watcher) -> None:
    """Optimizers that exist and hold something of what ran, whether or not they have made an update."""
    known = {*watcher.scene.reached, *watcher.scene.names()}
    for each in gc.get_objects():
        if (
            issubclass(type(each), Optimizer)
            and each not in watcher.scene.optimizers
            and known.intersection(held(each))
        ):
            watcher.scene.optimizers.append(each)


def _probe(watcher: Watcher, evidence: Evidence) -> None:
    readings = [
        read(watcher.scene, each, watcher[Losses].targets) for each in watcher[Calls].captured.values() if each.used
    ]
    repeats = any(each.repeated for each in evidence.evaluations)
    evidence.sequences = tuple(each.sequence for each in readings if each.sequence is not None)
    models = [each.call.model for each in readings]
    built = [(watcher[Layouts].first_numbers(m), watcher[Chance].of(m), watcher[Layouts].lost_state(m)) for m in models]
    aimed = frozenset(each.model for each in watcher[Aims].aims if each.constant is None)
    batches = Batches(functools.partial(_are_drawn, watcher), aimed)
    evidence.probes = tuple(
        probe(watcher.scene, each, watcher[Losses], repeats, *own, batches)
        for each, own in zip(readings, built, strict=True)
    )
    evidence.derivatives = tuple(derivatives_of(watcher[Custom].calls, watcher.scene.phases))
    evidence.metrics = tuple(watcher[Averages].metrics())
    arrays = (look_at_arrays(*each) for each in watcher[Pairs].sources if not evidence.loaders)
    targets = {each.target_print for each in watcher[Losses].losses if not each.in_model}
    evidence.samples = (*samples_of(watcher[Loaders], targets), *arrays)
    evidence.ordered_apart = tuple(ordered_apart(watcher.scene.source))
    evidence.reorders = reorders(watcher.scene.source)


def _are_drawn(watcher: Watcher, rows: int) -> bool:
    """Are batches of so many rows made of samples that were drawn one by one, as those of a recipe are?"""
    return (
        watcher.scene.tiny or watcher[Loaders].draws(rows) or any(not in_order for _, in_order in watcher[Pairs].places)
    )


def _parameters(watcher: Watcher, *, probes: bool) -> Iterator[Parameter]:
    optimized, reached, trained = watcher.scene.optimized(), watcher.scene.reached, watcher.scene.trained
    taught = reached - watcher.scene.penalized
    unused = {leaf: loss.where for loss, leaves in watcher[Losses].unused if not loss.weights for leaf in leaves}
    for model, prefix in watcher.scene.phases.models.items():
        ran = {p for m in model.modules() if m in watcher[Calls].executed for p in m.parameters(recurse=False)}
        resting = {p for m in model.modules() if m in watcher[Calls].resting for p in m.parameters(recurse=False)}
        tested: dict[torch.Tensor, bool] = {}
        lone = {p for p in ran if (p.requires_grad or p in trained) and p in optimized and p not in taught}
        if model in watcher[Calls].feeding:
            tested = dict.fromkeys(lone, True)
        elif probes and lone and model in watcher[Calls].captured:
            tested = matters(watcher.scene, watcher[Calls].captured[model], list(lone))
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
                moved=((p in lone and p not in reached) or p not in optimized) and watcher[Calls].moved(p),
                resting=p in resting,
            )


def _asks_for_same_bits() -> bool:
    return torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
