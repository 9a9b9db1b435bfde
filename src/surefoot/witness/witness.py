"""Witness: all parts together, around a loop; it gives the evidence."""

from __future__ import annotations

import functools
import gc
import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.callers import caller, site
from surefoot.checks.evidence import Backward, Evidence, File, Parameter
from surefoot.phases import Listener, Phases, aside, next_node
from surefoot.probes.data import samples_of
from surefoot.probes.derivatives import derivatives_of
from surefoot.probes.labels import look_at_arrays
from surefoot.probes.mixing import Batches
from surefoot.probes.model import matters, probe
from surefoot.probes.rows_apart import ordered_apart, reorders
from surefoot.probes.tokens import read
from surefoot.witness.aims import Aims
from surefoot.witness.aliases import Aliases
from surefoot.witness.averages import Averages
from surefoot.witness.averaging import Averaging
from surefoot.witness.by_hand import ByHand
from surefoot.witness.calls import Calls
from surefoot.witness.chance import Chance
from surefoot.witness.clipping import Clipping
from surefoot.witness.coarse import Coarseness
from surefoot.witness.custom import Custom
from surefoot.witness.drawn import Drawn
from surefoot.witness.draws import Draws
from surefoot.witness.emptied import Emptied
from surefoot.witness.evaluations import Evaluations
from surefoot.witness.files import Files
from surefoot.witness.first_layers import FirstLayers
from surefoot.witness.forgotten import Forgotten
from surefoot.witness.functions import Functions
from surefoot.witness.generators import Generators
from surefoot.witness.gradients import Gradients
from surefoot.witness.graph import Graph, walk
from surefoot.witness.held_counters import HeldCounters
from surefoot.witness.hidden import Hidden
from surefoot.witness.kept import Kept
from surefoot.witness.layouts import Layouts
from surefoot.witness.likelihoods import Likelihoods
from surefoot.witness.loaders import Loaders
from surefoot.witness.losses import Losses
from surefoot.witness.masked import Masked
from surefoot.witness.narrow import Narrow
from surefoot.witness.noise import Noise
from surefoot.witness.orders import Orders
from surefoot.witness.pairs import Pairs
from surefoot.witness.passes import Passes
from surefoot.witness.picks import Picks
from surefoot.witness.ranks import Between
from surefoot.witness.recomputed import Recomputed
from surefoot.witness.reductions import Reductions
from surefoot.witness.resumes import Resumes
from surefoot.witness.rows import Rows
from surefoot.witness.saved_shards import SavedShards
from surefoot.witness.scaling import Scaled
from surefoot.witness.scene import Part, Scene, held, readable
from surefoot.witness.schedules import Schedules
from surefoot.witness.seeds import Seeds
from surefoot.witness.shapes import Shapes
from surefoot.witness.terms import Terms
from surefoot.witness.thresholds import Thresholds
from surefoot.witness.ties import Ties
from surefoot.witness.told_metrics import ToldMetrics
from surefoot.witness.transforms import Transforms


class Witness(Listener):
    """A listener of `Phases`. Optimizers given beforehand count as holding their parameters at once.

    Enter it with the phases: while it is entered it also hears of losses, loaders, schedulers, scalers and files.
    """

    def __init__(self, phases: Phases, *optimizers: Optimizer) -> None:
        self.scene = Scene(phases, optimizers)
        self.calls, self.first_layers = Calls(self.scene), FirstLayers(self.scene)
        self.gradients = Gradients(self.scene)
        self.gradients.discarding.append(self.calls.forget_backpropagated)
        self.clipping, self.by_hand = Clipping(self.scene, self.gradients), ByHand(self.scene, self.gradients)
        self.picks, self.averages = Picks(self.scene), Averages(self.scene)
        self.coarseness, self.noise = Coarseness(self.scene), Noise(self.scene)
        self.terms, self.shapes, self.aims = Terms(self.scene), Shapes(self.scene), Aims(self.scene)
        self.reductions, self.emptied = Reductions(self.scene, self.gradients), Emptied(self.scene)
        self.aliases, self.custom = Aliases(self.scene), Custom(self.scene)
        self.seeds, self.thresholds = Seeds(self.scene), Thresholds(self.scene)
        self.loaders = Loaders(self.scene, self.gradients)
        self.rows, self.pairs = Rows(self.scene, self.loaders), Pairs(self.scene, self.loaders)
        self.orders, self.passes = Orders(self.scene, self.pairs), Passes(self.scene, self.loaders)
        self.narrow, self.evaluations = Narrow(self.scene, self.loaders), Evaluations(self.scene, self.loaders)
        self.losses = Losses(self.scene, self.picks, self.pairs, self.noise, self.averages, self.coarseness)
        self.transforms = Transforms(self.scene, self.calls, self.losses, self.gradients)
        self.transforms.seen = functools.partial(self._loss_seen, asked=True)
        self.schedules = Schedules(self.scene, self.loaders)
        self.scaled = Scaled(self.scene, self.gradients)
        self.scaled.left_out = self._update_left_out
        self.files, self.kept = Files(self.scene, self.schedules, self.rows), Kept(self.scene)
        self.ties, self.hidden, self.recomputed = Ties(self.scene), Hidden(self.scene), Recomputed(self.scene)
        self.layouts = Layouts(self.scene, self.ties)
        self.draws, self.drawn, self.chance = Draws(self.scene), Drawn(self.scene), Chance(self.scene)
        self.likelihoods, self.masked = Likelihoods(self.scene), Masked(self.scene)
        self.resumes = Resumes(self.scene, self.loaders)
        self.forgotten = Forgotten(self.scene, self.schedules, self.rows)
        self.generators, self.held_counters = Generators(self.scene), HeldCounters(self.scene)
        self.saved_shards, self.averaging = SavedShards(self.scene), Averaging(self.scene)
        self.told_metrics = ToldMetrics(self.scene, self.loaders)
        self.between = Between(self.scene, self.losses, self.loaders, self.averaging, self.told_metrics)
        self.parts: list[Part] = [
            self.calls, self.gradients, self.clipping, self.losses, self.reductions, self.coarseness, self.aims,
            self.terms, self.shapes, self.aliases, self.custom, self.picks, self.averages, self.rows, self.pairs,
            self.orders, self.noise, self.seeds, self.loaders, self.schedules, self.scaled, self.transforms, self.files,
            self.kept, self.ties, self.layouts, self.hidden, self.recomputed, self.thresholds, self.averaging,
            self.told_metrics, self.between, self.draws, self.resumes, self.saved_shards, self.by_hand, self.drawn,
            self.forgotten, self.generators, self.held_counters, self.chance, self.evaluations, self.likelihoods,
        ]  # fmt: skip
        self._staying: tuple[Part, ...] = (
            self.files, self.resumes, self.forgotten, self.generators, self.held_counters, self.schedules,
        )  # fmt: skip
        """They go on after the others have looked; the schedules last, which then count updates."""
        self._nodes_at: deque[int] = deque(maxlen=2)
        """How many nodes had been made when the last updates ended."""
        self._entered, self._looking = ExitStack(), ExitStack()
        phases.listeners.append(self)

    def __enter__(self) -> Self:
        for part in (self.schedules, *self._staying[:-1]):
            self._entered.enter_context(part)
        self._entered.push(self._looking)
        self._look()
        return self

    def _look(self) -> None:
        for part in self.parts:
            if part not in self._staying:
                self._looking.enter_context(part)
        heard = (
            self.calls, self.losses, self.thresholds, self.rows, self.pairs, self.noise, self.reductions,
            self.coarseness, self.aims, self.terms, self.shapes, self.aliases, self.seeds, self.kept, self.between,
            self.by_hand, self.drawn, self.chance, self.emptied, self.evaluations, self.likelihoods,
            self.masked,
        )  # fmt: skip
        self._looking.enter_context(Functions(self.scene, *heard))

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def rest(self) -> None:
        """Looks no longer; from now on only updates and schedulers are counted, and files are read."""
        self._looking.close()
        listeners = [self._staying if each is self else (each,) for each in self.scene.phases.listeners]
        self.scene.phases.listeners = [*itertools.chain.from_iterable(listeners)]
        self.scene.phases.only_models()
        self.schedules.alone = True

    def look_again(self) -> None:
        """Looks as closely as at first."""
        self._look()
        first, *others = self._staying
        left = [each for each in self.scene.phases.listeners if each not in others]
        self.scene.phases.listeners = [self if each is first else each for each in left]
        self.scene.phases.all_modules()
        self.scene.look_closely()
        self.schedules.alone = False

    def model_found(self, model: nn.Module, prefix: str) -> None:
        for part in self.parts:
            part.model_found(model, prefix)

    def model_called(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        for part in self.parts:
            part.model_called(model, args)

    def module_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.recomputed.module_begins(module, args)

    def module_called(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.calls.module_called(module, args, output)
        self.first_layers.module_called(module, args, output)
        self.layouts.module_called(module, args, output)
        self.hidden.module_called(module, args, output)
        self.recomputed.module_called(module, args, output)

    def model_returned(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        self.calls.model_returned(model, args, kwargs, output)
        heard = (self.first_layers, self.losses, self.aims, self.thresholds, self.averages, self.rows, self.pairs)
        later = (
            self.told_metrics,
            self.orders,
            self.passes,
            self.narrow,
            self.between,
            self.evaluations,
            self.generators,
        )
        for part in (*heard, *later):
            part.model_returned(model, args, kwargs, output)

    def backward_begins(self, losses: Any) -> None:
        self._loss_seen(losses)
        for part in self.parts:
            part.backward_begins(losses)

    def _loss_seen(self, losses: Any, *, asked: bool = False) -> None:
        """The gradient of a loss is asked for."""
        tensors = [losses] if isinstance(losses, torch.Tensor) else list(losses)
        graph = walk(tensors)
        graph.asked = asked
        self.gradients.backwards.append(
            Backward(
                where=caller(),
                differentiable=any(tensor.requires_grad for tensor in tensors),
                reaches_optimized=False,
                followed_by_update=False,
                double_softmax=tuple(self.scene.phases.maker(node) or "the loss" for node in graph.softmaxes),
                double_sigmoid=tuple(self.scene.phases.maker(node) or "the loss" for node in graph.sigmoids),
                nodes=len(graph.numbers),
                old_nodes=self._older(graph),
                shapes=tuple(self.calls.shapes),
                update=self.scene.updates,
                ascends=graph.ascends,
                in_update=self.scene.updating is not None,
                site=site(),
                value=self._value(tensors),
                scale=self.scaled.scale,
                asked=asked,
            )
        )
        for part in self.parts:
            part.graph_seen(graph)
        self.scene.backwards += 1

    def _older(self, graph: Graph) -> int:
        """The nodes of a graph that were made before the last two updates."""
        since = self._nodes_at[-2] if len(self._nodes_at) == 2 else 0
        return sum(each < since for each in graph.numbers) if min(graph.numbers, default=0) < since else 0

    def _value(self, losses: list[torch.Tensor]) -> float | None:
        if not self.scene.close or len(losses) != 1 or losses[0].numel() != 1 or not readable(losses[0]):
            return None
        with aside():
            return float(losses[0])

    def backward_ends(self) -> None:
        for part in self.parts:
            part.backward_ends()

    def update_begins(self, optimizer: Optimizer) -> None:
        if optimizer not in self.scene.optimizers:
            self.scene.optimizers.append(optimizer)
        for part in self.parts:
            part.update_begins(optimizer)
        self.scene.updating = optimizer

    def update_ends(self, optimizer: Optimizer) -> None:
        self.scene.updating = None
        for part in self.parts:
            part.update_ends(optimizer)
        self._nodes_at.append(next_node())
        self.scene.count(optimizer)

    def _update_left_out(self, optimizer: Optimizer) -> None:
        for part in self.parts:
            part.update_left_out(optimizer)
        self.scene.leave_out(optimizer)

    def evidence(self, *, probes: bool = True) -> Evidence:
        """What was seen so far; with `probes`, models and data sets are disturbed on copies, too."""
        if probes:
            self._find_optimizers()
        self.evaluations.settle()
        self.gradients.settle()
        self.loaders.settle()
        evidence = Evidence(
            hidden_modules=tuple(self.hidden.modules()),
            leaves=tuple(self.gradients.leaves()),
            forwards=tuple(self.calls.forwards),
            evaluations=tuple(self.evaluations.seen),
            backwards=tuple(self.gradients.backwards),
            updates=tuple(self.gradients.updates),
            optimizers=tuple(self.gradients.optimizers()),
            losses=tuple(self.losses.losses),
            aims=tuple(self.aims.aims),
            likelihoods=tuple(self.likelihoods.likelihoods),
            reductions=tuple(self.reductions.reductions),
            terms=tuple(self.terms.terms),
            emptied_lines=self.emptied.lines(),
            multiplied_lines=self.masked.lines(),
            flat_lines=tuple(line for line, count in self.terms.flat.items() if count >= 3),
            discards=tuple(self.gradients.discards()),
            clips=tuple(self.clipping.clips),
            drawn_without_gradient=self.drawn.lines(),
            carried_by_hand=self.by_hand.carried,
            unused_limits=self.by_hand.unused(),
            schedules=tuple(self.schedules.schedules()),
            loaders=tuple(self.loaders.loaders()),
            inputs=tuple(self.first_layers.inputs),
            layouts=tuple(self.layouts.layouts()),
            crossings=(*self.shapes.crossings.values(), *self.losses.misdirected()),
            coarse=tuple(self.coarseness.coarse.values()),
            thresholds=tuple(self.thresholds.thresholds.values()),
            scaling=self.scaled.scaling(bfloat16=any(each.bfloat16 and each.trained for each in self.calls.forwards)),
            files=tuple(self._files()),
            recomputations=tuple(self.recomputed.differing.values()),
            ranks=self.between.ranks(),
            parted=(*self.picks.parted(), *self.pairs.parted(), *self.noise.parted()),
            shown=tuple(self.rows.seen()),
            passes=tuple(self.passes.passes()),
            narrow_tokens=tuple(self.narrow.found()),
            part_of=self.rows.part_of(),
            shuffled_once=self.orders.shuffled_once(),
            reseeded_updates=self.seeds.repeated(),
            unseeded_generators=self.draws.unseeded(),
            benchmarks_kernels=torch.backends.cudnn.benchmark and _asks_for_same_bits(),
            idle_accelerator=self._idle_accelerator(),
            resumptions=tuple(self.resumes.resumptions()),
            held_counters=tuple(self.held_counters.off),
            lost_states=tuple(self.generators.lost()),
            shared_files=tuple(self.saved_shards.files()),
            derivatives_in_losses=self.transforms.derivatives,
            kept_graphs=self.gradients.kept_graphs,
            written_through_data=tuple(self.aliases.lines),
            weights_by_hand=self.gradients.moved_by_hand,
            ended=self.scene.ended,
        )
        evidence.parameters = tuple(self._parameters(probes=probes))
        if probes:
            self._probe(evidence)
        return evidence

    def _files(self) -> Iterator[File]:
        yield from self.files.files(schedulers=any(each.calls for each in self.schedules.seen.values()))
        yield from self.kept.files
        yield from self.forgotten.files()

    def _idle_accelerator(self) -> str:
        devices = {each.device.type for each in self.scene.names()}
        return str(torch.accelerator.current_accelerator(check_available=True) or "") if devices == {"cpu"} else ""

    def _find_optimizers(self) -> None:
        """Optimizers that exist and hold something of what ran, whether or not they have made an update."""
        known = self.scene.reached.union(self.scene.names())
        for each in gc.get_objects():
            if (
                issubclass(type(each), Optimizer)
                and each not in self.scene.optimizers
                and known.intersection(held(each))
            ):
                self.scene.optimizers.append(each)

    def _probe(self, evidence: Evidence) -> None:
        readings = [read(self.scene, each, self.losses.targets) for each in self.calls.captured.values() if each.used]
        repeats = any(each.repeated for each in evidence.evaluations)
        evidence.sequences = tuple(each.sequence for each in readings if each.sequence is not None)
        models = [each.call.model for each in readings]
        built = [(self.layouts.first_numbers(m), self.chance.of(m), self.layouts.lost_state(m)) for m in models]
        aimed = frozenset(each.model for each in self.aims.aims if each.constant is None)
        batches = Batches(self._are_drawn, aimed)
        evidence.probes = tuple(
            probe(self.scene, each, self.losses, repeats, *own, batches)
            for each, own in zip(readings, built, strict=True)
        )
        evidence.derivatives = tuple(derivatives_of(self.custom.calls, self.scene.phases))
        evidence.metrics = tuple(self.averages.metrics())
        arrays = (look_at_arrays(*each) for each in self.pairs.sources if not evidence.loaders)
        targets = {each.target_print for each in self.losses.losses if not each.in_model}
        evidence.samples = (*samples_of(self.loaders, targets), *arrays)
        evidence.ordered_apart = tuple(ordered_apart(self.scene.source))
        evidence.reorders = reorders(self.scene.source)

    def _are_drawn(self, rows: int) -> bool:
        """Are batches of so many rows made of samples that were drawn one by one, as those of a recipe are?"""
        return self.scene.tiny or self.loaders.draws(rows) or any(not in_order for _, in_order in self.pairs.places)

    def _parameters(self, *, probes: bool) -> Iterator[Parameter]:
        optimized, reached, trained = self.scene.optimized(), self.scene.reached, self.scene.trained
        taught = reached - self.scene.penalized
        unused = {leaf: loss.where for loss, leaves in self.losses.unused if not loss.weights for leaf in leaves}
        for model, prefix in self.scene.phases.models.items():
            ran = {p for m in model.modules() if m in self.calls.executed for p in m.parameters(recurse=False)}
            resting = {p for m in model.modules() if m in self.calls.resting for p in m.parameters(recurse=False)}
            tested: dict[torch.Tensor, bool] = {}
            lone = {p for p in ran if (p.requires_grad or p in trained) and p in optimized and p not in taught}
            if model in self.calls.feeding:
                tested = dict.fromkeys(lone, True)
            elif probes and lone and model in self.calls.captured:
                tested = matters(self.scene, self.calls.captured[model], list(lone))
            for name, p in model.named_parameters():
                yield Parameter(
                    prefix + name,
                    self.scene.name(model),
                    p.requires_grad or p in trained,
                    p in reached,
                    p in optimized,
                    executed=p in ran,
                    in_loss=tested.get(p),
                    elements=p.numel(),
                    follows=p in self.gradients.followers,
                    penalized=p in self.scene.penalized,
                    only_in=unused.get(p, "") if p not in reached else "",
                    moved=((p in lone and p not in reached) or p not in optimized) and self.calls.moved(p),
                    resting=p in resting,
                )


def _asks_for_same_bits() -> bool:
    return torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
