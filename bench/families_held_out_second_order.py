"""Learning that is itself differentiated: inner loops, implicit gradients, made weights, learned updates, LBFGS."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from families import family, mlp
from torch import nn
from torch.func import functional_call, vmap

from surefoot import Recipe, recipe_of

second = family("second_order", steps=5)


def tasks(count: int, ways: int = 5, shots: int = 5) -> dict[str, torch.Tensor]:
    images = torch.randn(count, ways * (shots + 5), 1, 28, 28)
    return {"images": images, "labels": torch.arange(ways).repeat(count, shots + 5)}


def small_net(ways: int = 5) -> nn.Module:
    def block(into: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(into, 32, 3, 1, 1), nn.BatchNorm2d(32, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2)
        )

    return nn.Sequential(block(1), block(32), block(32), nn.Flatten(), nn.Linear(32 * 9, ways))


@second
def inner_loops() -> Recipe:
    """Three inner steps for each task, each with rates that are learned, and gradients through all of them."""

    class Learner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net()
            self.rates = nn.ParameterDict(
                {
                    name.replace(".", "_"): nn.Parameter(torch.full((3,), 0.05))
                    for name, _ in self.net.named_parameters()
                }
            )

    def loss(model: Any, batch: Any) -> torch.Tensor:
        total = torch.zeros(())
        for images, labels in zip(batch["images"], batch["labels"], strict=True):
            weights = dict(model.net.named_parameters())
            for number in range(3):
                inner = F.cross_entropy(functional_call(model.net, weights, images[:25]), labels[:25])
                slopes = torch.autograd.grad(inner, tuple(weights.values()), create_graph=True)
                weights = {
                    name: weight - model.rates[name.replace(".", "_")][number] * slope
                    for (name, weight), slope in zip(weights.items(), slopes, strict=True)
                }
            total = total + F.cross_entropy(functional_call(model.net, weights, images[25:]), labels[25:])
        return total / len(batch["images"])

    return recipe_of(Learner, tasks(2), loss=loss, optimizer=lambda p: torch.optim.Adam(p, 1e-3), tokens_per_sample=1)


@second
def implicit_gradients() -> Recipe:
    """Inner loops that are not differentiated: the gradient solves an equation by conjugate gradients."""

    def adapted(net: nn.Module, centre: list[torch.Tensor], images: Any, labels: Any) -> nn.Module:
        fast = copy.deepcopy(net)
        inner = torch.optim.SGD(fast.parameters(), lr=0.05, momentum=0.9)
        for _ in range(8):
            loss = F.cross_entropy(fast(images), labels)
            loss = loss + 0.5 * sum(
                (a - b.detach()).square().sum() for a, b in zip(fast.parameters(), centre, strict=True)
            )
            inner.zero_grad()
            loss.backward()
            inner.step()
            if loss.item() < 0.05:
                break
        return fast

    def solved(product: Any, right: torch.Tensor, rounds: int = 6) -> torch.Tensor:
        x, left = torch.zeros_like(right), right.clone()
        way, size = left.clone(), left @ left
        for _ in range(rounds):
            pushed = product(way)
            step = size / (way @ pushed)
            x, left = x + step * way, left - step * pushed
            after = left @ left
            if after < 1e-8 * (right @ right):
                break
            way, size = left + after / size * way, after
        return x

    def step(net: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        centre, total = list(net.parameters()), torch.zeros(())
        optimizer.zero_grad()
        for images, labels in zip(batch["images"], batch["labels"], strict=True):
            fast = adapted(net, centre, images[:25], labels[:25])
            weights = list(fast.parameters())
            outer = F.cross_entropy(fast(images[25:]), labels[25:])
            right = torch.cat([each.flatten() for each in torch.autograd.grad(outer, weights)])
            inner = F.cross_entropy(fast(images[:25]), labels[:25])
            slopes = torch.cat([each.flatten() for each in torch.autograd.grad(inner, weights, create_graph=True)])

            def product(way: torch.Tensor, slopes: Any = slopes, weights: Any = weights) -> torch.Tensor:
                found = torch.autograd.grad(slopes @ way, weights, retain_graph=True)
                return way + torch.cat([each.flatten() for each in found])

            pulls = solved(product, right).split([each.numel() for each in centre])
            for parameter, pull in zip(centre, pulls, strict=True):
                pull = pull.view_as(parameter) / len(batch["images"])
                parameter.grad = pull if parameter.grad is None else parameter.grad + pull
            total += outer.detach()
        optimizer.step()
        return total

    return recipe_of(
        small_net, tasks(2), step=step, optimizer=lambda m: torch.optim.Adam(m.parameters()), tokens_per_sample=1
    )


@second
def made_weights() -> Recipe:
    """A network that writes the weights of another one, in chunks, for each task; the other is mapped over tasks."""
    shapes = [(96, 32), (96,), (96, 96), (96,), (16, 96), (16,)]
    total = sum(math.prod(shape) for shape in shapes)

    class Writer(nn.Module):
        def __init__(self, chunk: int = 512) -> None:
            super().__init__()
            self.tasks, self.chunks = nn.Embedding(64, 32), nn.Embedding(math.ceil(total / chunk), 32)
            self.body = mlp(64, chunk, 192)
            self.gain = nn.Parameter(torch.tensor(0.1))

        def forward(self, task: torch.Tensor) -> list[torch.Tensor]:
            count = len(self.chunks.weight)
            joined = torch.cat([
                self.tasks(task).unsqueeze(1).expand(-1, count, -1), self.chunks.weight.expand(len(task), -1, -1)
            ], -1)  # fmt: skip
            flat = self.gain * self.body(joined).flatten(1)[:, :total]
            parts = flat.split([math.prod(shape) for shape in shapes], 1)
            return [part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]

    def run(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for number in range(0, 6, 2):
            x = F.linear(x, weights[number], weights[number + 1])
            x = F.gelu(x) if number < 4 else x
        return x

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        task, x, aims = batch
        weights = model(task)
        told = vmap(run)(weights, x)
        with torch.no_grad():
            before = [each.clone() for each in model(task.roll(1))]
        drift = sum((a - b).square().mean() for a, b in zip(weights, before, strict=True))
        return F.mse_loss(told, aims) + 0.01 * drift

    batch = torch.randint(0, 64, (32,)), torch.randn(32, 100, 32), torch.randn(32, 100, 16)
    return recipe_of(Writer, batch, loss=loss)


@second
def learned_updates() -> Recipe:
    """An LSTM over every weight of a small problem is its optimizer; it learns through unrolled steps, cut twice."""

    class Updater(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.out = nn.LSTMCell(2, 20), nn.LSTMCell(20, 20), nn.Linear(20, 1)

        def forward(self, slope: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
            size = slope.abs().clamp(min=1e-8).log() / 10
            into = torch.stack([size.clamp(min=-1), torch.where(size >= -1, slope.sign(), slope * math.e**10)], 1)
            (h1, c1), (h2, c2) = state
            h1, c1 = self.one(into, (h1, c1))
            h2, c2 = self.two(h1, (h2, c2))
            return 0.1 * self.out(h2).squeeze(1), ((h1, c1), (h2, c2))

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        x, labels = batch
        weights = 0.05 * torch.randn(64 * 20 + 20 * 10)
        state = tuple(tuple(torch.zeros(len(weights), 20) for _ in range(2)) for _ in range(2))
        shown = torch.zeros(())
        for _ in range(2):
            total = torch.zeros(())
            for _ in range(5):
                weights.requires_grad_() if weights.is_leaf else weights.retain_grad()
                rows = torch.randint(0, len(x), (64,))
                first, last = weights.split((1280, 200))
                inner = F.cross_entropy(torch.sigmoid(x[rows] @ first.view(64, 20)) @ last.view(20, 10), labels[rows])
                (slope,) = torch.autograd.grad(inner, weights, retain_graph=True)
                change, state = model(slope.detach(), state)
                total = total + inner
                weights = weights + change
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            weights = weights.detach()
            state = tuple(tuple(each.detach() for each in pair) for pair in state)
            shown = shown + total.detach()
        return shown

    return recipe_of(Updater, (torch.randn(500, 64), torch.randint(0, 10, (500,))), step=step,
                     optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=3e-3))  # fmt: skip


@second
def searched_cells() -> Recipe:
    """Choices between operations, learned on other data by a finite difference; weights come back after each probe."""

    class Mixed(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.operations = nn.ModuleList(
                [nn.Identity(), nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.BatchNorm2d(width))]
            )
            for gap in (1, 2):
                apart = nn.Conv2d(width, width, 3, 1, gap, gap, groups=width)
                joined = nn.Sequential(nn.ReLU(), apart, nn.Conv2d(width, width, 1), nn.BatchNorm2d(width))
                self.operations.append(joined)

        def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            return sum(weight * operation(x) for weight, operation in zip(weights, self.operations, strict=True))

    class Cells(nn.Module):
        def __init__(self, width: int = 24, nodes: int = 3) -> None:
            super().__init__()
            self.stem, self.nodes = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width)), nodes
            self.edges = nn.ModuleList(Mixed(width) for _ in range(nodes * (nodes + 1) // 2))
            self.head = nn.Linear(nodes * width, 10)
            self.choices = nn.Parameter(1e-3 * torch.randn(len(self.edges), 4))

        def own(self) -> list[nn.Parameter]:
            return [p for name, p in self.named_parameters() if name != "choices"]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states, at = [self.stem(x)], 0
            for _ in range(self.nodes):
                states.append(
                    sum(self.edges[at + n](each, self.choices[at + n].softmax(0)) for n, each in enumerate(states))
                )
                at += len(states) - 1
            return self.head(torch.cat(states[1:], 1).mean((2, 3)))

    def step(model: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        (x, other_x), (labels, other_labels) = (each.chunk(2) for each in batch)
        own, rate = model.own(), optimizers["weights"].param_groups[0]["lr"]
        slopes = torch.autograd.grad(F.cross_entropy(model(x), labels), own)
        probe = copy.deepcopy(model)
        with torch.no_grad():
            for parameter, source, slope in zip(probe.own(), own, slopes, strict=True):
                state = optimizers["weights"].state[source]
                moment = 0.9 * state["momentum_buffer"] if "momentum_buffer" in state else 0
                parameter -= rate * (slope + moment)
        other = F.cross_entropy(probe(other_x), other_labels)
        found = torch.autograd.grad(other, [probe.choices, *probe.own()])
        near = 0.01 / torch.cat([each.flatten() for each in found[1:]]).norm()
        sides = []
        for sign in (1, -2):
            with torch.no_grad():
                for parameter, way in zip(own, found[1:], strict=True):
                    parameter += sign * near * way
            sides.append(torch.autograd.grad(F.cross_entropy(model(x), labels), model.choices)[0])
        with torch.no_grad():
            for parameter, way in zip(own, found[1:], strict=True):
                parameter += near * way
        model.choices.grad = found[0] - rate * (sides[0] - sides[1]) / (2 * near)
        optimizers["choices"].step()
        optimizers["weights"].zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(own, 5)
        optimizers["weights"].step()
        model.choices.grad = None
        return {"loss": loss, "other": other}

    def optimizers(model: Any) -> dict[str, torch.optim.Optimizer]:
        return {
            "weights": torch.optim.SGD(model.own(), 0.025, 0.9, weight_decay=3e-4),
            "choices": torch.optim.Adam([model.choices], 3e-4, (0.5, 0.999), weight_decay=1e-3),
        }

    return recipe_of(Cells, (torch.randn(24, 3, 32, 32), torch.randint(0, 10, (24,))), step=step, optimizer=optimizers)


@second
def adam_then_lbfgs() -> Recipe:
    """A wave equation by its residual: two steps of Adam, then LBFGS with a line search of any length."""

    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(2, 1, 96, 3, nn.Tanh)
            self.speed = nn.Parameter(torch.tensor(0.5))
            self.later: Any = None
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return self.body(torch.stack([x, t], 1)).squeeze(1)

    def residual(model: Any, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        x, t = x.detach().requires_grad_(), t.detach().requires_grad_()
        u = model(x, t)
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        (u_tt,) = torch.autograd.grad(u_t.sum(), t, create_graph=True)
        return u_tt - model.speed.square() * u_xx

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        x, t, start = batch

        def closure() -> torch.Tensor:
            model.zero_grad()
            zero = torch.zeros_like(x)
            inside = residual(model, x, t).square().mean()
            begun = F.mse_loss(model(start, zero), torch.sin(math.pi * start))
            edges = model(zero, t).square().mean() + model(zero + 1, t).square().mean()
            loss = inside + 10 * begun + edges
            loss.backward()
            return loss

        model.steps += 1
        if model.steps <= 2:
            loss = closure()
            optimizer.step()
            return loss
        if model.later is None:
            model.later = torch.optim.LBFGS(
                model.parameters(), max_iter=6, history_size=10, line_search_fn="strong_wolfe"
            )
        return model.later.step(closure).detach()

    return recipe_of(Wave, (torch.rand(600), torch.rand(600), torch.rand(600)), step=step,
                     optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=1e-3))  # fmt: skip
