"""look: runs one step and shows every module and tensor in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from surefoot.data.batches import batches_of
from surefoot.debug.look.graph import graph_of
from surefoot.debug.look.modules import Modules
from surefoot.debug.look.tensors import tensors_of
from surefoot.errors import RunError
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.randomness import kept
from surefoot.recipe.bare import recipe_of
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.run_script import StopScript, run_script
from surefoot.records.layers import Layer
from surefoot.records.looked import Looked
from surefoot.step import Step
from surefoot.techniques.layers import Layers
from surefoot.training.init_from import with_first_weights
from surefoot.world.world import RealWorld


def look(model: Recipe | nn.Module | Callable[[], nn.Module], batch: Any = None) -> Looked:
    """Takes one real step of a recipe, or of a module with a `batch`, and returns what every module did.

    A module that you have already built is copied, and stays as it is. Compiled code runs eagerly here.
    """
    recipe = model if isinstance(model, Recipe) else recipe_of(model, batch)
    recipe = replace(with_first_weights(recipe), compile="off", fullgraph=False)
    world = RealWorld()
    with kept(), world:
        if world.ranks > 1:
            raise RunError("look runs in one process; start it without torchrun")
        watching = _Looking(world)
        with watching.phases:
            step = Step(recipe, world)
            watching.phases.find(step.model)
            batches = batches_of(recipe)
            taken = step(world.take(batches) for _ in range(recipe.micro_batches()))
            return watching.record(recipe.name, None if taken.loss is None else taken.loss.item())


def look_at_script(script: str, args: Sequence[str] = (), *, on: str | None = None) -> Looked:
    """Runs a script as `python script` would until its first update has ended, and returns what every module did.

    `on` names a GPU that is not here: its tensors have shapes and no values, and the script writes no files.
    """
    if on is not None:
        return _look_on_card(script, args, on)
    with kept():
        watching = _Looking(RealWorld(), stops=True)
        with watching.phases:
            with suppress(StopScript):
                run_script(script, args)
            losses = watching.seen.losses
            return watching.record(script, losses[0].item() if losses and losses[0].numel() == 1 else None)


def _look_on_card(script: str, args: Sequence[str], on: str) -> Looked:
    from surefoot.hardware import counted
    from surefoot.world.card.card import Card
    from surefoot.world.card.files import Held, held_back
    from surefoot.world.gpu.target import targets

    count, single = counted(on)
    if count > 1:
        raise RunError(f"look runs in one process: write --on {single}")
    card = Card(targets(single)[1])
    watching = _Looking(RealWorld(), stops=True, values=False)
    with TemporaryDirectory(prefix="surefoot-look-") as folder, ExitStack() as entered:
        within: tuple[AbstractContextManager[Any], ...] = (kept(), held_back(Held(Path(folder)), card), card)
        for each in (*within, *card.below, watching.phases, *card.above):
            entered.enter_context(each)
        with suppress(StopScript):
            run_script(script, args)
        return watching.record(script, None)


class _Looking(Listener):
    """Listens to a step: modules and tensors, and the gradient, update and activations of layers."""

    def __init__(self, world: RealWorld, *, stops: bool = False, values: bool = True) -> None:
        self.phases, self._world, self._stops, self._values = Phases(), world, stops, values
        self.seen = Modules(self.phases)
        self._layers: dict[str, Layers] = {}
        """Those of each model, by the prefix of its names."""
        self.phases.listeners += [self.seen, self]

    def model_found(self, model: nn.Module, prefix: str) -> None:
        if self._values:
            self._layers[prefix] = Layers(model, (), self._world)

    def module_called(self, module: nn.Module, args: Any, output: Any) -> None:
        for each in self._layers.values() if torch.is_grad_enabled() else ():
            each.called(module, args, output)

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        for each in self._layers.values():
            each.update_begins(optimizer)

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        for each in self._layers.values():
            each.update_ends(optimizer)
        if self._stops:
            raise StopScript

    def record(self, of: str, loss: float | None) -> Looked:
        """What was seen."""
        if not self.seen.called:
            raise RunError(f"{of} called no model with gradients, so there is nothing to look at")
        found: dict[str, Layer] = {}
        for prefix, each in self._layers.items():
            each.end()
            found |= {prefix + name: Layer(**figures) for name, figures in each.figures().items()}
        modules = tuple(replace(each, layer=found.get(each.name)) for each in self.seen.modules())
        return Looked(of, loss, modules, tuple(tensors_of(self.seen, self.phases)), graph_of(self.seen, self.phases))
