"""Witness: all parts together, around a loop; it gives the evidence."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph, walk
from surefoot.checks.engine.functions import Functions
from surefoot.checks.engine.scene import Part, Scene, readable
from surefoot.checks.evaluation.batch_averages import Averages
from surefoot.checks.evaluation.forwards import Evaluations
from surefoot.checks.evaluation.passes import Passes
from surefoot.checks.evaluation.thresholds import Thresholds
from surefoot.checks.facts import Backward, Evidence
from surefoot.checks.gather import told
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
from surefoot.checks.models.first_inputs import FirstLayers
from surefoot.checks.models.hidden_modules import Hidden
from surefoot.checks.models.layout import Layouts
from surefoot.checks.models.random_tables import Chance
from surefoot.checks.models.tied_weights import Ties
from surefoot.checks.precision.coarse_numbers import Coarseness
from surefoot.checks.precision.scaling import Scaled
from surefoot.checks.ranks.comparison import Between
from surefoot.checks.ranks.gradient_averages import Averaging
from surefoot.checks.ranks.metric_exchange import ToldMetrics
from surefoot.checks.ranks.shard_files import SavedShards
from surefoot.checks.registry import allowed_checks, run_checks
from surefoot.checks.samples.index_pairs import Picks
from surefoot.checks.samples.loaders import Loaders
from surefoot.checks.samples.orders import Orders
from surefoot.checks.samples.pairs import Pairs
from surefoot.checks.samples.reseeding import Seeds
from surefoot.checks.samples.rows import Rows
from surefoot.checks.samples.unseeded_draws import Draws
from surefoot.checks.saved_state.file_counters import Resumes
from surefoot.checks.saved_state.files import Files
from surefoot.checks.saved_state.generator_states import Generators
from surefoot.checks.saved_state.lost_moments import Forgotten
from surefoot.checks.saved_state.object_counters import HeldCounters
from surefoot.checks.saved_state.shared_weights import Kept
from surefoot.checks.text.lenient_masks import Masked
from surefoot.checks.text.narrow_tokens import Narrow
from surefoot.checks.updates.by_hand import ByHand
from surefoot.checks.updates.clipping import Clipping
from surefoot.checks.updates.schedules import Schedules
from surefoot.events.autograd import aside, next_node
from surefoot.events.callers import caller, site
from surefoot.events.forked import only_here
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.records.finding import Findings


class Witness(Listener):
    """A listener of `Phases`. Optimizers given beforehand count as holding their parameters at once.

    Enter it with the phases: while it is entered it also hears of losses, loaders, schedulers, scalers and files.
    With `spares` an exception in it ends the looking, and not the loop.
    """

    def __init__(self, phases: Phases, *optimizers: Optimizer, spares: bool = False) -> None:
        self.scene = Scene(phases, optimizers, spares=spares)
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
        self._heard = self.scene.spared.listener(self)
        self._heard_staying = [self.scene.spared.listener(each) for each in self._staying]
        phases.listeners.append(self._heard)

    def __enter__(self) -> Self:
        for part in (self.schedules, *self._staying[:-1]):
            self._entered.enter_context(part)
        self._entered.push(self._looking)
        self._look()
        return self

    def _look(self) -> None:
        # compiled code runs as it is written: nothing could be heard in it, and hooks would break a full graph
        self._looking.enter_context(torch.compiler.set_stance("force_eager"))
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        for part in self.parts:
            if part not in self._staying:
                self._looking.enter_context(part)
        heard = (
            self.calls, self.losses, self.thresholds, self.rows, self.pairs, self.noise, self.reductions,
            self.coarseness, self.aims, self.terms, self.shapes, self.aliases, self.seeds, self.kept, self.between,
            self.by_hand, self.drawn, self.chance, self.emptied, self.evaluations, self.likelihoods,
            self.masked,
        )  # fmt: skip
        self._looking.enter_context(only_here(Functions(self.scene, *heard)))

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def rest(self) -> None:
        """Looks no longer; from now on only updates and schedulers are counted, and files are read."""
        self._looking.close()
        listeners = [self._heard_staying if each is self._heard else [each] for each in self.scene.phases.listeners]
        self.scene.phases.listeners = [*itertools.chain.from_iterable(listeners)]
        self.scene.phases.only_models()
        self.schedules.alone = True

    def look_again(self) -> None:
        """Looks as closely as at first."""
        self._look()
        first, *others = self._heard_staying
        left = [each for each in self.scene.phases.listeners if each not in others]
        self.scene.phases.listeners = [self._heard if each is first else each for each in left]
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
        return told(self, probes=probes)

    def findings(self, *, recipe: str, allow: Iterable[str] = (), probes: bool = True) -> Findings:
        """What the checks say of the evidence. Of what was seen until something failed they say nothing."""
        allowed, spared = allowed_checks(allow), self.scene.spared
        if not spared.failure:
            try:
                return run_checks(self.evidence(probes=probes), recipe=recipe, allow=allowed)
            except Exception as error:
                spared.fail(error)
        return Findings(recipe, (), allowed=allowed, failure=spared.failure)
