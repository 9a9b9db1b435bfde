"""Optimizers that do other work in some steps than in others: projections, preconditioners, slow weights, restarts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from families import family, mlp
from torch import nn
from torch.optim import Optimizer

from surefoot import Recipe, recipe_of

WIDTH = 256
periodic = family("periodic_optimizers", steps=8)


def on_rows(optimizer: Callable[[Any], Optimizer], **settings: Any) -> Recipe:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    batch = torch.randn(128, WIDTH), torch.randint(0, 10, (128,))
    return recipe_of(
        lambda: mlp(WIDTH, 10, WIDTH, 4), batch, **{"optimizer": optimizer, "loss": loss, "max_steps": 100, **settings}
    )


class Galore(Optimizer):
    """Adam on gradients that are projected on a subspace, which a decomposition finds anew every few steps."""

    def __init__(self, parameters: Any, lr: float = 1e-3, rank: int = 16, every: int = 4) -> None:
        super().__init__(parameters, {"lr": lr, "rank": rank, "every": every})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, gradient = self.state[p], p.grad
                count = state["step"] = state.get("step", 0) + 1
                if p.dim() == 2 and min(p.shape) > group["rank"]:
                    if (count - 1) % group["every"] == 0:
                        u, _, _ = torch.linalg.svd(gradient, full_matrices=False)
                        state["basis"] = u[:, : group["rank"]].contiguous()
                    gradient = state["basis"].t() @ gradient
                if "m" not in state:
                    state["m"], state["v"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
                state["m"].lerp_(gradient, 0.1)
                state["v"].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                update = state["m"] / (state["v"].sqrt() + 1e-8)
                if p.dim() == 2 and min(p.shape) > group["rank"]:
                    update = state["basis"] @ update
                p.add_(update, alpha=-group["lr"])


@periodic
def galore() -> Recipe:
    return on_rows(Galore)


class Shampoo(Optimizer):
    def __init__(self, parameters: Any, lr: float = 1e-3, every: int = 3) -> None:
        super().__init__(parameters, {"lr": lr, "every": every})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state, gradient = self.state[p], p.grad
                if not state:
                    state["step"] = 0
                    state["sums"] = [1e-4 * torch.eye(size) for size in p.shape]
                    state["roots"] = [torch.eye(size) for size in p.shape]
                state["step"] += 1
                for axis in range(p.dim()):
                    flat = gradient.transpose(0, axis).reshape(p.shape[axis], -1)
                    state["sums"][axis].add_(flat @ flat.t())
                    if state["step"] % group["every"] == 0:
                        values, vectors = torch.linalg.eigh(state["sums"][axis])
                        power = values.clamp(min=1e-6).pow(-0.5 / p.dim())
                        state["roots"][axis] = vectors @ torch.diag(power) @ vectors.t()
                update = gradient
                for axis, root in enumerate(state["roots"]):
                    update = torch.tensordot(root, update.transpose(0, axis), 1).transpose(0, axis)
                p.add_(update, alpha=-group["lr"])


@periodic
def shampoo() -> Recipe:
    return on_rows(Shampoo)


class Lookahead(Optimizer):
    """Slow weights that follow another optimizer every few steps, as people wrap it."""

    def __init__(self, base: Optimizer, every: int = 5, alpha: float = 0.5) -> None:
        self.base, self.every, self.alpha, self.count = base, every, alpha, 0
        self.defaults, self.param_groups, self.state = base.defaults, base.param_groups, base.state
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.base.step()
        self.count += 1
        if self.count % self.every:
            return
        for group in self.param_groups:
            for p in group["params"]:
                slow = self.state[p].setdefault("slow", p.clone())
                slow.add_(p - slow, alpha=self.alpha)
                p.copy_(slow)


@periodic
def lookahead() -> Recipe:
    return on_rows(lambda parameters: Lookahead(torch.optim.RAdam(parameters)))


class Averaging(Optimizer):
    """SGD; after a start of some steps the average of the weights along the way is kept too."""

    def __init__(self, parameters: Any, lr: float = 1e-2, begin: int = 4, every: int = 2) -> None:
        super().__init__(parameters, {"lr": lr, "begin": begin, "every": every})
        self.count = self.averaged = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.count += 1
        for group in self.param_groups:
            keep = self.count >= group["begin"] and (self.count - group["begin"]) % group["every"] == 0
            self.averaged += keep
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
                if keep:
                    average = self.state[p].setdefault("average", torch.zeros_like(p))
                    average.add_((p - average) / self.averaged)


@periodic
def stochastic_weight_averaging() -> Recipe:
    return on_rows(Averaging)


@periodic
def accumulated_by_hand() -> Recipe:
    """An update in every fourth call only: gradients live in between."""
    calls = 0

    def step(model: nn.Module, optimizer: Any, batch: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        loss = F.cross_entropy(model(batch[0]), batch[1])
        (loss / 4).backward()
        if calls % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return on_rows(lambda model: torch.optim.AdamW(model.parameters()), step=step, loss=None)


@periodic
def lisa() -> Recipe:
    """Every third step, other layers are trained; the others have no gradients and no new state."""
    calls = 0

    def step(model: nn.Module, optimizer: Any, batch: Any) -> torch.Tensor:
        nonlocal calls
        layers = [each for each in model if isinstance(each, nn.Linear)]
        if calls % 3 == 0:
            chosen = set(random.Random(calls).sample(range(len(layers)), 2))
            for number, layer in enumerate(layers):
                layer.requires_grad_(number in chosen)
        calls += 1
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return on_rows(lambda model: torch.optim.AdamW(model.parameters()), step=step, loss=None)


class Restarted(torch.optim.AdamW):
    """AdamW that forgets its moments every fourth step, as ReLoRA does when it merges."""

    count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        if self.count % 4 == 0:
            self.state.clear()
        return super().step(closure)


@periodic
def restarts() -> Recipe:
    return on_rows(Restarted)


class Sam(Optimizer):
    """Sharpness-aware minimisation around SGD, as the best known repository writes it."""

    def __init__(self, parameters: Any, rho: float = 0.05) -> None:
        super().__init__(parameters, {"rho": rho})
        self.base = torch.optim.SGD(self.param_groups, lr=1e-2, momentum=0.9)

    @torch.no_grad()
    def first_step(self) -> None:
        norms = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        scale = self.param_groups[0]["rho"] / (torch.stack(norms).norm() + 1e-12)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


@periodic
def sharpness_aware() -> Recipe:
    def step(model: nn.Module, optimizer: Any, batch: Any) -> torch.Tensor:
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.first_step()
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()
        return loss

    return on_rows(lambda model: Sam(model.parameters()), step=step, loss=None)
