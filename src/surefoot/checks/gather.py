"""Told: what a witness has seen, as the evidence that checks are given."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.scene import held
from surefoot.checks.facts import Evidence, File, Parameter
from surefoot.checks.gradients.custom_backward import derivatives_of
from surefoot.checks.models.disturb_inputs import matters, probe
from surefoot.checks.models.sample_mixing import Batches
from surefoot.checks.samples.labels import look_at_arrays
from surefoot.checks.samples.reread import samples_of
from surefoot.checks.source.rows_apart import ordered_apart, reorders
from surefoot.checks.text.token_targets import read

if TYPE_CHECKING:
    from surefoot.checks.watcher import Witness


def told(witness: Witness, *, probes: bool) -> Evidence:
    """What was seen so far; with `probes`, models and data sets are disturbed on copies, too."""
    if probes:
        _find_optimizers(witness)
    witness.evaluations.settle()
    witness.gradients.settle()
    witness.loaders.settle()
    evidence = Evidence(
        hidden_modules=tuple(witness.hidden.modules()),
        leaves=tuple(witness.gradients.leaves()),
        forwards=tuple(witness.calls.forwards),
        evaluations=tuple(witness.evaluations.seen),
        backwards=tuple(witness.gradients.backwards),
        updates=tuple(witness.gradients.updates),
        optimizers=tuple(witness.gradients.optimizers()),
        losses=tuple(witness.losses.losses),
        aims=tuple(witness.aims.aims),
        likelihoods=tuple(witness.likelihoods.likelihoods),
        reductions=tuple(witness.reductions.reductions),
        terms=tuple(witness.terms.terms),
        emptied_lines=witness.emptied.lines(),
        lenient_masks=witness.masked.lines(),
        flat_lines=tuple(line for line, count in witness.terms.flat.items() if count >= 3),
        discards=tuple(witness.gradients.discards()),
        clips=tuple(witness.clipping.clips),
        drawn_without_gradient=witness.drawn.lines(),
        carried_by_hand=witness.by_hand.carried,
        unused_limits=witness.by_hand.unused(),
        schedules=tuple(witness.schedules.schedules()),
        loaders=tuple(witness.loaders.loaders()),
        inputs=tuple(witness.first_layers.inputs),
        layouts=tuple(witness.layouts.layouts()),
        crossings=(*witness.shapes.crossings.values(), *witness.losses.misdirected()),
        coarse=tuple(witness.coarseness.coarse.values()),
        thresholds=tuple(witness.thresholds.thresholds.values()),
        scaling=witness.scaled.scaling(bfloat16=any(each.bfloat16 and each.trained for each in witness.calls.forwards)),
        files=tuple(_files(witness)),
        recomputations=tuple(witness.recomputed.differing.values()),
        ranks=witness.between.ranks(),
        parted=(*witness.picks.parted(), *witness.pairs.parted(), *witness.noise.parted()),
        rising_targets=tuple(witness.pairs.rising.lines()),
        shown=tuple(witness.rows.seen()),
        passes=tuple(witness.passes.passes()),
        narrow_tokens=tuple(witness.narrow.found()),
        part_of=witness.rows.part_of(),
        shuffled_once=witness.orders.shuffled_once(),
        reseeded_updates=witness.seeds.repeated(),
        unseeded_generators=witness.draws.unseeded(),
        benchmarks_kernels=torch.backends.cudnn.benchmark and _asks_for_same_bits(),
        idle_accelerator=_idle_accelerator(witness),
        resumptions=tuple(witness.resumes.resumptions()),
        held_counters=tuple(witness.held_counters.off),
        lost_states=tuple(witness.generators.lost()),
        shared_files=tuple(witness.saved_shards.files()),
        derivatives_in_losses=witness.transforms.derivatives,
        kept_graphs=witness.gradients.kept_graphs,
        written_through_data=tuple(witness.aliases.lines),
        weights_by_hand=witness.gradients.moved_by_hand,
        ended=witness.scene.ended,
    )
    evidence.parameters = tuple(_parameters(witness, probes=probes))
    if probes:
        _probe(witness, evidence)
    return evidence


def _files(witness: Witness) -> Iterator[File]:
    yield from witness.files.files(schedulers=any(each.calls for each in witness.schedules.seen.values()))
    yield from witness.kept.files
    yield from witness.forgotten.files()


def _idle_accelerator(witness: Witness) -> str:
    devices = {each.device.type for each in witness.scene.names()}
    return str(torch.accelerator.current_accelerator(check_available=True) or "") if devices == {"cpu"} else ""


def _find_optimizers(witness: Witness) -> None:
    """Optimizers that exist and hold something of what ran, whether or not they have made an update."""
    known = {*witness.scene.reached, *witness.scene.names()}
    for each in gc.get_objects():
        if (
            issubclass(type(each), Optimizer)
            and each not in witness.scene.optimizers
            and known.intersection(held(each))
        ):
            witness.scene.optimizers.append(each)


def _probe(witness: Witness, evidence: Evidence) -> None:
    readings = [
        read(witness.scene, each, witness.losses.targets) for each in witness.calls.captured.values() if each.used
    ]
    repeats = any(each.repeated for each in evidence.evaluations)
    evidence.sequences = tuple(each.sequence for each in readings if each.sequence is not None)
    models = [each.call.model for each in readings]
    built = [(witness.layouts.first_numbers(m), witness.chance.of(m), witness.layouts.lost_state(m)) for m in models]
    aimed = frozenset(each.model for each in witness.aims.aims if each.constant is None)
    batches = Batches(functools.partial(_are_drawn, witness), aimed)
    evidence.probes = tuple(
        probe(witness.scene, each, witness.losses, repeats, *own, batches)
        for each, own in zip(readings, built, strict=True)
    )
    evidence.derivatives = tuple(derivatives_of(witness.custom.calls, witness.scene.phases))
    evidence.metrics = tuple(witness.averages.metrics())
    arrays = (look_at_arrays(*each) for each in witness.pairs.sources if not evidence.loaders)
    targets = {each.target_print for each in witness.losses.losses if not each.in_model}
    evidence.samples = (*samples_of(witness.loaders, targets), *arrays)
    evidence.ordered_apart = tuple(ordered_apart(witness.scene.source))
    evidence.reorders = reorders(witness.scene.source)


def _are_drawn(witness: Witness, rows: int) -> bool:
    """Are batches of so many rows made of samples that were drawn one by one, as those of a recipe are?"""
    return (
        witness.scene.tiny or witness.loaders.draws(rows) or any(not in_order for _, in_order in witness.pairs.places)
    )


def _parameters(witness: Witness, *, probes: bool) -> Iterator[Parameter]:
    optimized, reached, trained = witness.scene.optimized(), witness.scene.reached, witness.scene.trained
    taught = reached - witness.scene.penalized
    unused = {leaf: loss.where for loss, leaves in witness.losses.unused if not loss.weights for leaf in leaves}
    for model, prefix in witness.scene.phases.models.items():
        ran = {p for m in model.modules() if m in witness.calls.executed for p in m.parameters(recurse=False)}
        resting = {p for m in model.modules() if m in witness.calls.resting for p in m.parameters(recurse=False)}
        tested: dict[torch.Tensor, bool] = {}
        lone = {p for p in ran if (p.requires_grad or p in trained) and p in optimized and p not in taught}
        if model in witness.calls.feeding:
            tested = dict.fromkeys(lone, True)
        elif probes and lone and model in witness.calls.captured:
            tested = matters(witness.scene, witness.calls.captured[model], list(lone))
        for name, p in model.named_parameters():
            yield Parameter(
                prefix + name,
                witness.scene.name(model),
                p.requires_grad or p in trained,
                p in reached,
                p in optimized,
                executed=p in ran,
                in_loss=tested.get(p),
                elements=p.numel(),
                follows=p in witness.gradients.followers,
                penalized=p in witness.scene.penalized,
                only_in=unused.get(p, "") if p not in reached else "",
                moved=((p in lone and p not in reached) or p not in optimized) and witness.calls.moved(p),
                resting=p in resting,
            )


def _asks_for_same_bits() -> bool:
    return torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
