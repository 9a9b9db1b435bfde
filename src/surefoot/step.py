"""Step: the one training step, in plain PyTorch. It does not know that it is watched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.errors import NonFinite, RecipeError
from surefoot.randomness import derive, seed_all
from surefoot.recipe import Recipe
from surefoot.techniques import accumulate, clip, compile, groups, precision, recompute, schedule
from surefoot.world import World


@dataclass(frozen=True)
class Outcome:
    """What an update was made from: the loss over all elements of the step, and the gradients' norm before clipping.

    `updated` is False where the update was left out: the scaler met an infinite gradient, or the recipe skips it.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor
    count: torch.Tensor | int
    updated: bool = True


class Step:
    """One optimizer update: every micro-batch forward and backward, then one update. `number` counts them."""

    def __init__(self, recipe: Recipe, world: World) -> None:
        self.recipe, self.device, self.finite = recipe, world.device, world.finite
        self.number = 0
        seed_all(recipe.seed)
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
        """The loss over all elements of some batches, in evaluation mode and without gradients.

        Every module is put back into the mode it was in.
        """
        total_loss, total_count = torch.zeros((), device=self.device), 0
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with torch.no_grad():
                for batch in batches:
                    loss, count = self._loss(batch)
                    total_loss, total_count = total_loss + loss, total_count + count
        finally:
            for module in training:
                module.training = True
        return total_loss / total_count

    def loss_of(self, micro_batch: int, batch: Any) -> tuple[torch.Tensor, torch.Tensor | int]:
        """The loss of one micro-batch of this step, as a sum and its count; its random numbers are always the same."""
        seed_all(derive(self.recipe.seed, "step", self.number, "rank", 0, "micro-batch", micro_batch))
        return self._loss(batch)

    def _loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor | int]:
        with precision.autocast(self.recipe.precision, self.device):
            inputs = precision.inputs_in(self.recipe.precision, batch)
            return accumulate.sum_and_count(self.recipe.loss(self.model, inputs))

    def __call__(self, batches: Iterable[Any]) -> Outcome:
        reference: torch.Tensor | int | None = None
        buffers = self._buffers() if self.recipe.nonfinite == "skip" else {}
        for micro_batch, batch in enumerate(batches):
            loss, count = self.loss_of(micro_batch, batch)
            if reference is None:
                reference, total_count = accumulate.expected(count, self.recipe.micro_batches()), count
                total_loss = loss.detach()
            else:
                total_count, total_loss = total_count + count, total_loss + loss.detach()
            self.scaler.scale(accumulate.divided(loss, reference)).backward()
        if reference is None:
            raise RecipeError("a step got no micro-batch; the data ended")

        self.scaler.unscale_(self.optimizer)
        accumulate.normalise(self.parameters, reference, total_count)
        grad_norm = clip.clip(self.parameters, self.recipe.max_grad_norm)
        mean_loss = total_loss / total_count
        updated = self._update(mean_loss, grad_norm)
        if not updated:
            for buffer, before in buffers.items():
                buffer.copy_(before)
        self.number += 1
        self.optimizer.zero_grad(set_to_none=True)
        return Outcome(mean_loss, grad_norm, total_count, updated)

    def _buffers(self) -> dict[torch.Tensor, torch.Tensor]:
        """Running statistics as they were: the forward pass of a step that is left out has spoilt them."""
        return {buffer: buffer.clone() for buffer in self.model.buffers()}

    def _update(self, loss: torch.Tensor, grad_norm: torch.Tensor) -> bool:
        """One update, if there is something finite to make it from."""
        trusted = loss if self.scaler.is_enabled() else loss + grad_norm  # the scaler looks at gradients itself
        if not self.finite(trusted):
            if self.recipe.nonfinite == "stop":
                raise NonFinite(self.number + 1, loss.item(), grad_norm.item())
            return False
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.get_scale() < scale:  # a lowered scale means that an infinite gradient was met
            if scale < 1:
                raise NonFinite(self.number + 1, loss.item(), grad_norm.item())
            return False
        self.scheduler.step()
        return True
