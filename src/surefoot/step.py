"""Step: the one training step, in plain PyTorch. It does not know about meters or checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from surefoot.errors import NonFinite, RecipeError
from surefoot.randomness import derive, seed_all
from surefoot.recipe.build import build_model
from surefoot.recipe.recipe import Recipe
from surefoot.recipe.returned import checked_loss, checked_metrics, checked_optimizer
from surefoot.techniques import (
    accumulate,
    adapters,
    buffers,
    clip,
    compile,
    context_parallel,
    ddp,
    deterministic,
    ema,
    epochs,
    float32,
    fp8,
    freeze,
    fsdp,
    fused,
    groups,
    layers,
    loss_chunks,
    loss_parallel,
    mesh,
    metrics,
    offload,
    own_step,
    precision,
    recompute,
    schedule,
    tensor_parallel,
)
from surefoot.world.device import wide, widest
from surefoot.world.world import World


@dataclass(frozen=True)
class Outcome:
    """The result of a step: the loss over all its elements, and the norm of the gradients before clipping.

    Loss, norm and count cover all ranks and are the same on each.

    `updated` is False if the update was skipped: the scaler met an infinite gradient, or the recipe skips it.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor | None
    count: torch.Tensor | int
    updated: bool = True
    parts: dict[str, torch.Tensor] = field(default_factory=dict)
    """The losses by name, of a step that the recipe wrote. Such a step has no gradient norm."""


@dataclass(frozen=True)
class Scores:
    """An evaluation: the loss over all elements, and the recipe's metrics, over all ranks."""

    loss: torch.Tensor | None
    """None if the recipe has its own step and no loss."""
    metrics: dict[str, torch.Tensor]
    is_mean: bool = False
    """Whether the loss function returned means, which have equal weight, instead of sums and counts."""


@dataclass(frozen=True)
class Sums:
    """The losses of a step's micro-batches on one rank, added up, and the count of their elements."""

    loss: torch.Tensor
    count: torch.Tensor | int
    divisor: torch.Tensor | int
    """What every loss was divided by before its backward: near the count. The update corrects for the difference."""
    last: Any
    """The last micro-batch and its loss. They live until the update ends, as in a plain loop, and plans count them."""


def model_of(recipe: Recipe, layout: mesh.Layout, device: torch.device) -> torch.nn.Module:
    """The recipe's model in training mode, before it is distributed. A model to be sharded stays in host memory."""
    with torch.device("cpu") if layout.shards else device, precision.parameters_in(recipe.precision):
        model = build_model(recipe)
    freeze.apply(model, recipe)
    float32.apply(model, recipe)
    model.train()
    return model


class Step:
    """One optimizer update: every micro-batch forward and backward, then one update. `number` counts the updates.

    Each rank has its own `Step`; all ranks build and call theirs together. The names in `model` are the recipe's,
    whatever the layout; `called` is the model that the loss function gets.
    """

    def __init__(self, recipe: Recipe, world: World) -> None:
        self.recipe, self.device, self.world = recipe, world.device, world
        self.layout = mesh.layout_of(recipe, rank=world.rank, ranks=world.ranks)
        self.micro_batches = recipe.micro_batches(self.layout.data_ranks)
        self.mesh = mesh.mesh_of(self.layout, self.device)
        float32.refuse_layout(recipe, self.layout)
        of_many = cast(DeviceMesh, self.mesh)  # with one rank nothing below uses it
        self.context = context_parallel.apply(recipe, self.layout, world)
        self.number = 0
        self.model = model_of(recipe, self.layout, self.device)
        self.cutting = tensor_parallel.apply(self.model, recipe, of_many) if self.layout.tp > 1 else None
        if self.cutting is not None:
            freeze.apply(self.model, recipe)  # torch's parallel styles make some parameters anew, as trainable ones
        self.conversion = fp8.apply(self.model, recipe, world, sharded=self.layout.shards)
        self.compiled = world.compiles and recipe.compile != "off"
        sharded = fsdp.policy(recipe) if self.layout.shards else None
        returned = fsdp.policy(recipe, root=True).output_dtype if self.layout.shards else None
        self.chunking = loss_chunks.apply(self.model, recipe, returned=returned)
        self.recomputation = recompute.apply(self.model, recipe, world, compiled=self.compiled, sharded=sharded)
        if self.compiled:
            compile.apply(self.model, recipe)
        self.sharding = fsdp.apply(self.model, recipe, self.layout, of_many) if self.layout.shards else None
        self.offloading = offload.apply(self.model, recipe, world)
        self.called = ddp.apply(self.model, of_many, recipe.bucket_cap_mb) if self.layout.replicates else self.model
        self.shared_buffers = buffers.saved_buffers(self.model) if self.layout.ranks > 1 else []
        self.parameters = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = self._optimizer()
        self._schedulers = [schedule.scheduler(recipe, each) for each in self.optimizers]
        self.scheduler = own_step.Schedulers(self._schedulers) if self.is_own else self._schedulers[0]
        self.scaler = precision.scaler(recipe.precision, self.device)
        self.ema = None if recipe.ema is None else ema.Averages(self.model, recipe.ema)

    def _optimizer(self) -> torch.optim.Optimizer:
        recipe = self.recipe
        if recipe.step is None:
            made = groups.optimizer_of(self.model, recipe)
            return fused.apply(checked_optimizer(made, recipe.name), recipe)
        return own_step.optimizers_of(recipe.optimizer(self.model), recipe.name)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that are stepped: one, or those of the recipe's own step."""
        own = isinstance(self.optimizer, own_step.Optimizers)
        return list(cast(own_step.Optimizers, self.optimizer).named.values()) if own else [self.optimizer]

    @property
    def is_own(self) -> bool:
        """Whether the recipe wrote the update itself."""
        return self.recipe.step is not None

    @property
    def parameter_count(self) -> int:
        """The number of all parameters, including frozen ones."""
        return adapters.parameter_count(self.model)

    def choices(self) -> tuple[str, ...]:
        """What surefoot chose for this model and why, one sentence each."""
        kept = precision.in_float32(self.recipe.precision, self.device, sharded=self.layout.shards)
        mixed = [f"precision={self.recipe.precision} keeps in float32: {kept}"] if kept != "everything" else []
        spread = [
            *(ddp.explain(self.layout) if self.layout.replicates else ()),
            *(self.sharding.explain() if self.sharding else ()),
            *(self.context.explain() if self.context else ()),
            *(self.cutting.explain(self.model) if self.cutting else ()),
            *(self.chunking.explain() if self.chunking else ()),
            *(self.offloading.explain() if self.offloading else ()),
        ]
        frozen = (
            *adapters.explain(self.model, self.recipe),
            *freeze.explain(self.model, self.recipe),
            *ema.explain(self.model, self.recipe),
        )
        mixed += [*float32.explain(self.model, self.recipe), *deterministic.explain(self.recipe)]
        mixed += [*(self.conversion.explain() if self.conversion else ()), *epochs.explain(self.recipe)]
        return (*mixed, *frozen, *spread, *self.recomputation.explain(), *groups.explain(self.optimizer, self.model))

    def evaluate(
        self, batches: Iterable[Any], *, most: int | None = None, sums_in: torch.dtype = torch.float32
    ) -> Scores:
        """Loss and metrics over the batches of all ranks, in evaluation mode and without gradients.

        The ranks take turns and give equally many batches; only the first `most` of all are counted. In float64 the
        sum of losses does not depend on their order. Every module returns to its previous mode.
        """
        dtype = widest(self.device) if sums_in is torch.float64 else sums_in
        total_loss = torch.zeros((), dtype=dtype, device=self.device)
        total_count: torch.Tensor | int = 0
        totals = metrics.Totals()
        with self._evaluating():
            for micro_batch, batch in enumerate(batches):
                counts = most is None or self._place(micro_batch) < most
                if self.recipe.loss is not None:
                    with loss_parallel.around(self.recipe):
                        loss, count = self._loss(batch)
                    if counts:
                        total_loss, total_count = total_loss + loss, total_count + count
                totals.add(self._metrics(batch), counts=counts)
        if self.recipe.loss is None:
            return Scores(None, totals.over_ranks(self.world, speaks=self.layout.speaks))
        total_loss, total_count = self._over_ranks(total_loss, total_count)
        found = totals.over_ranks(self.world, speaks=self.layout.speaks)
        return Scores(total_loss / total_count, found, is_mean=self._means)

    def held_out(self, loss: float) -> None:
        """Tells the loss of an evaluation to schedulers that wait for it. It is the same on all ranks."""
        for each in self._schedulers:
            if isinstance(each, schedule.TorchScheduler):
                each.evaluated(loss)

    def measure_layers(self) -> layers.Layers | None:
        """A context that measures the layers of a step, if the recipe asks for it; in compiled code no activations."""
        if self.recipe.layers_every is None:
            return None
        eager = self.recipe.compile == "off"
        return layers.Layers(self.model, self.optimizers, self.world, activations=eager)

    def measure(self, batches: Iterable[Any]) -> dict[str, torch.Tensor]:
        """The recipe's metrics over these batches of all ranks, in evaluation mode and without gradients."""
        totals = metrics.Totals()
        with self._evaluating():
            for batch in batches:
                totals.add(self._metrics(batch))
        return totals.over_ranks(self.world, speaks=self.layout.speaks)

    def averaged(self) -> AbstractContextManager[None]:
        """A context in which the model has its averaged weights, if the recipe averages them."""
        return nullcontext() if self.ema is None else self.ema.swapped()

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients, with averaged weights. Every module returns to its previous mode."""
        with self.averaged(), self._in_evaluation_mode():
            yield

    @contextmanager
    def _in_evaluation_mode(self) -> Iterator[None]:
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with torch.no_grad(), fp8.scales_known(self.model, self.conversion):
                yield
        finally:
            if self.sharding:
                fsdp.reshard(self.model)
            for module in training:
                module.training = True

    def _metrics(self, batch: Any) -> Mapping[str, Any]:
        if self.recipe.metrics is None:
            return {}
        with self._calling():
            return checked_metrics(self.recipe.metrics(self.called, self._inputs(batch)), self.recipe.name)

    def loss_of(self, micro_batch: int, batch: Any) -> tuple[torch.Tensor, torch.Tensor | int]:
        """The loss of one micro-batch of this step, as a sum and a count; its random numbers are always the same."""
        part, place = self.layout.context_rank, self._place(micro_batch)
        seed_all(derive(self.recipe.seed, "step", self.number, "rank", part, "micro-batch", place))
        with self.offloading.around(batch) if self.offloading and torch.is_grad_enabled() else nullcontext():
            return self._loss(batch)

    def _place(self, micro_batch: int) -> int:
        """The number of this micro-batch over all ranks, which take turns. Its seed is the same on any rank."""
        return micro_batch * self.layout.data_ranks + self.layout.data_rank

    def _loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor | int]:
        assert self.recipe.loss is not None
        with self._calling():
            returned = self.recipe.loss(self.called, self._inputs(batch))
            loss = checked_loss(loss_parallel.whole(returned), self.recipe.name)
            self._means = not isinstance(loss, tuple)
            if self.context is not None:
                self.context.refuse_wrong(self._means)
            return accumulate.sum_and_count(loss)

    def _inputs(self, batch: Any) -> Any:
        """What this rank computes of a batch, in the formats of the recipe's precision."""
        return precision.inputs_in(self.recipe.precision, batch if self.context is None else self.context.cut(batch))

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """The context for calls of the model and the loss. Sharded models bring their own number formats."""
        formats = fsdp.calling() if self.sharding else precision.autocast(self.recipe.precision, self.device)
        with formats, self._attending():
            yield

    def _attending(self) -> AbstractContextManager[None]:
        """The context in which attention is over the tokens of all ranks. Backward may compute it again."""
        return nullcontext() if self.context is None else self.context.attending()

    def __call__(self, batches: Iterable[Any]) -> Outcome:
        if self.recipe.step is not None:
            return self._own(self.recipe.step, batches)
        before = self._buffers() if self.recipe.nonfinite == "skip" else {}
        with fp8.scales_known(self.model, self.conversion):
            sums = self.forward_backward(batches)
        total_loss, total_count = self._over_ranks(sums.loss, sums.count)

        self.scaler.unscale_(self.optimizer)
        parts = self.layout.data_ranks * self.layout.cp
        expected = sums.divisor if parts == 1 else sums.divisor * parts
        accumulate.normalise(self.parameters, expected, total_count)
        grad_norm = clip.clip(self.parameters, self.recipe.max_grad_norm)
        mean_loss = total_loss / total_count
        updated = self._update(mean_loss, grad_norm)
        if updated and self.ema is not None:
            self.ema.update()
        if not updated:
            for buffer, value in before.items():
                buffer.copy_(value)
        if self.shared_buffers:
            buffers.agree(self.model, self.shared_buffers)
        self.number += 1
        self.optimizer.zero_grad(set_to_none=True)
        return Outcome(mean_loss, grad_norm, total_count, updated)

    def forward_backward(self, batches: Iterable[Any]) -> Sums:
        """Runs forward and backward of all micro-batches of this rank. Returns the sums of their losses and counts.

        The only method that decides when each forward and backward runs, so another schedule can take its place. It
        must leave each gradient divided by `divisor` and reduced over ranks once.
        """
        divisor: torch.Tensor | int | None = None
        for micro_batch, batch in enumerate(batches):
            with self._syncing(micro_batch + 1 == self.micro_batches), loss_parallel.around(self.recipe):
                loss, count = self.loss_of(micro_batch, batch)
                if divisor is None:  # all micro-batches are divided by the same number, so their gradients add up
                    divisor, total_count, total_loss = self._expected(count), count, loss.detach()
                else:
                    total_count, total_loss = total_count + count, total_loss + loss.detach()
                with self._attending():
                    self.scaler.scale(accumulate.divided(loss, divisor)).backward()
        if divisor is None:
            raise RecipeError("a step got no micro-batch: the data ended")
        if self.layout.ranks > 1 and micro_batch + 1 != self.micro_batches:
            raise RecipeError(f"a step got {micro_batch + 1} of {self.micro_batches} micro-batches: the data ended")
        return Sums(total_loss, total_count, divisor, last=(batch, loss))

    def _own(self, step: Callable[[Any, Any, Any], Any], batches: Iterable[Any]) -> Outcome:
        """The update that the recipe wrote. It is made before surefoot sees whether its loss is finite."""
        batch = next(iter(batches), None)
        if batch is None:
            raise RecipeError("a step got no batch: the data ended")
        seed_all(derive(self.recipe.seed, "step", self.number, "rank", 0, "micro-batch", 0))
        optimizers = own_step.handed_out(cast(own_step.Optimizers, self.optimizer))
        made = step(self.model, optimizers, precision.inputs_in(self.recipe.precision, batch))
        parts = own_step.losses_of(made, self.recipe.name)
        loss = parts.get("loss", next(iter(parts.values())))
        if not self.world.finite(loss):
            raise NonFinite(self.number + 1, loss.item(), math.nan)
        if self.ema is not None:
            self.ema.update()
        self.scheduler.step()
        self.number += 1
        self.optimizer.zero_grad(set_to_none=True)
        return Outcome(loss, None, self.recipe.micro_batch_size, parts=parts)

    def _syncing(self, last: bool) -> AbstractContextManager[None]:
        """Reduces gradients over ranks only once, in the last micro-batch."""
        if isinstance(self.called, DistributedDataParallel):
            return ddp.syncing(self.called, last)
        return fsdp.syncing(self.model, last) if isinstance(self.model, FSDPModule) else nullcontext()

    def _expected(self, count: torch.Tensor | int) -> torch.Tensor | int:
        """The divisor of this rank's losses during the step: near its own count, and the same on every rank.

        Gradients are averaged over ranks. All ranks use one divisor, so one factor at the end corrects for the count
        of all ranks.
        """
        if self.layout.data_ranks * self.layout.cp == 1:
            return accumulate.expected(count, self.micro_batches)
        size = 1 if self._means else self.recipe.micro_batch_size * self.recipe.tokens_per_sample
        return max(1, size // self.layout.cp) * self.micro_batches

    def _over_ranks(self, loss: torch.Tensor, count: torch.Tensor | int) -> tuple[torch.Tensor, torch.Tensor | int]:
        """The sums over all ranks, counting each share of the data once."""
        if self.layout.ranks == 1:
            return loss, count
        speaks = float(self.layout.speaks)
        total_loss, total_count = self.world.sum(wide(loss) * speaks, count * speaks)
        return total_loss.to(loss.dtype), total_count

    def _buffers(self) -> dict[torch.Tensor, torch.Tensor]:
        """Copies of the running statistics, because the forward pass of a skipped step changes them."""
        return {buffer: buffer.clone() for buffer in self.model.buffers()}

    def _update(self, loss: torch.Tensor, grad_norm: torch.Tensor) -> bool:
        """Makes the update if loss and gradients are finite. Returns whether it did."""
        trusted = loss if self.scaler.is_enabled() else loss + grad_norm  # the scaler checks gradients itself
        if not self.world.finite(trusted):
            if self.recipe.nonfinite == "stop":
                raise NonFinite(self.number + 1, loss.item(), grad_norm.item())
            self.scaler.update()
            return False
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.get_scale() < scale:  # a lower scale means that the scaler found an infinite gradient
            if scale < 1:
                raise NonFinite(self.number + 1, loss.item(), grad_norm.item())
            return False
        self.scheduler.step()
        return True
