"""Step: the one training step, in plain PyTorch. It does not know that it is watched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.errors import RecipeError
from surefoot.recipe import Recipe
from surefoot.techniques import accumulate, clip, compile, groups, precision, recompute, schedule
from surefoot.world import World


@dataclass(frozen=True)
class Outcome:
    """What an update was made from: the loss over all elements of the step, and the gradients' norm."""

    loss: torch.Tensor
    grad_norm: torch.Tensor | None
    count: torch.Tensor | int


class Step:
    """One optimizer update: every micro-batch forward and backward, then one update."""

    def __init__(self, recipe: Recipe, world: World) -> None:
        self.recipe, self.device = recipe, world.device
        torch.manual_seed(recipe.seed)
        with self.device, precision.parameters_in(recipe.precision):
            self.model = recipe.model()
        self.model.train()
        self.compiled = world.compiles and recipe.compile != "off"
        self.recomputation = recompute.apply(self.model, recipe, compiled=self.compiled)
        if self.compiled:
            compile.apply(self.model, recipe)
        self.parameters = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = recipe.optimizer(groups.optimizer_groups(self.model, recipe.decay))
        self.scheduler = schedule.scheduler(recipe, self.optimizer)
        self.scaler = precision.scaler(recipe.precision, self.device)

    @property
    def parameter_count(self) -> int:
        """Of all parameters, frozen ones included."""
        return sum(each.numel() for each in self.model.parameters())

    def choices(self) -> tuple[str, ...]:
        """What was settled for this model, and why: one sentence each."""
        kept = precision.in_float32(self.recipe.precision, self.device)
        mixed = [f"precision={self.recipe.precision}: in float32 stays {kept}"] if kept != "everything" else []
        return (*mixed, *self.recomputation.explain(), *groups.explain(self.optimizer, self.model))

    def evaluate(self, batches: Iterable[Any]) -> torch.Tensor:
        """The loss over all elements of some batches: evaluation mode and no gradients, and back to training."""
        total_loss, total_count = torch.zeros((), device=self.device), 0
        self.model.eval()
        try:
            with torch.no_grad():
                for batch in batches:
                    loss, count = self._loss(batch)
                    total_loss, total_count = total_loss + loss, total_count + count
        finally:
            self.model.train()
        return total_loss / total_count

    def _loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor | int]:
        with precision.autocast(self.recipe.precision, self.device):
            inputs = precision.inputs_in(self.recipe.precision, batch)
            return accumulate.sum_and_count(self.recipe.loss(self.model, inputs))

    def __call__(self, batches: Iterable[Any]) -> Outcome:
        reference: torch.Tensor | int | None = None
        for batch in batches:
            loss, count = self._loss(batch)
            if reference is None:
                reference = total_count = count
                total_loss = loss.detach()
            else:
                total_count, total_loss = total_count + count, total_loss + loss.detach()
            self.scaler.scale(accumulate.divided(loss, reference)).backward()
        if reference is None:
            raise RecipeError("a step got no micro-batch; the data ended")

        self.scaler.unscale_(self.optimizer)
        accumulate.normalise(self.parameters, reference, total_count)
        grad_norm = clip.clip(self.parameters, self.recipe.max_grad_norm)
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.get_scale() >= scale:  # a lowered scale means that an infinite gradient was skipped
            self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Outcome(total_loss / total_count, grad_norm, total_count)
