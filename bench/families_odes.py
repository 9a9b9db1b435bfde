"""Differential equations in the forward pass: fixed and adaptive solvers, adjoints, fixed points, events."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from families import family, mlp
from torch import nn
from torch.utils.checkpoint import checkpoint

from surefoot import Recipe, recipe_of

ode = family("odes")
Field = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Flow(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = mlp(width + 1, width, 128, act=nn.Tanh)

    def forward(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.body(torch.cat([x, t.expand(len(x), 1)], 1))


def rows(samples: int = 256, width: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, width), torch.randn(samples, width)


def rk4(field: Field, t: torch.Tensor, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    one = field(t, x)
    two = field(t + h / 2, x + h / 2 * one)
    three = field(t + h / 2, x + h / 2 * two)
    four = field(t + h, x + h * three)
    return x + h / 6 * (one + 2 * two + 2 * three + four)


@ode
def euler() -> Recipe:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        x, times = batch[0], torch.linspace(0, 1, 21)
        for t, later in itertools.pairwise(times):
            x = x + (later - t) * model(t, x)
        return F.mse_loss(x, batch[1])

    return recipe_of(Flow, rows(), loss=loss)


@ode
def runge_kutta_recomputed() -> Recipe:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        x, h = batch[0], torch.tensor(0.1)
        for number in range(10):
            x = checkpoint(rk4, model, number * h, x, h, use_reentrant=False)
        return F.mse_loss(x, batch[1])

    return recipe_of(Flow, rows(), loss=loss)


A = ((1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9), (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
     (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656), (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784,
     11 / 84))  # fmt: skip
E5 = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def dopri5(field: Field, x: torch.Tensor, tolerance: float = 1e-4) -> torch.Tensor:
    """From 0 to 1 with steps as long as their error allows; a step that errs too much is tried again."""
    t, h = torch.zeros(()), torch.tensor(0.05)
    while t < 1:
        h = torch.minimum(h, 1 - t)
        slopes = [field(t, x)]
        for row in A:
            slopes.append(field(t + sum(row) * h, x + h * sum(a * k for a, k in zip(row, slopes, strict=True))))
        after = x + h * sum(a * k for a, k in zip(A[-1], slopes, strict=False))
        error = h * sum(e * k for e, k in zip(E5, slopes, strict=True))
        ratio = (error / (tolerance + tolerance * torch.maximum(x.abs(), after.abs()))).square().mean().sqrt().detach()
        if ratio <= 1:
            t, x = t + h, after
        h = h * (0.9 * (ratio + 1e-10) ** -0.2).clamp(0.2, 10)
    return x


@ode
def adaptive() -> Recipe:
    return recipe_of(Flow, rows(), loss=lambda model, batch: F.mse_loss(dopri5(model, batch[0]), batch[1]))


@ode
def adjoint() -> Recipe:
    """Gradients by solving another equation backwards, which keeps no activations."""

    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, field: Any, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
            context.field = field
            with torch.no_grad():
                for number in range(20):
                    x = rk4(field, torch.tensor(number / 20), x, torch.tensor(0.05))
            context.save_for_backward(x, *weights)
            return x

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> Any:
            x, *weights = context.saved_tensors
            sums = [torch.zeros_like(each) for each in weights]
            for number in range(20, 0, -1):
                with torch.enable_grad():
                    here = x.detach().requires_grad_()
                    slope = context.field(torch.tensor(number / 20), here)
                    found = torch.autograd.grad(slope, (here, *weights), gradient, allow_unused=True)
                x = x - 0.05 * slope.detach()
                gradient = gradient + 0.05 * found[0]
                sums = [each + 0.05 * g for each, g in zip(sums, found[1:], strict=True)]
            return None, gradient, *sums

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return F.mse_loss(Adjoint.apply(model, batch[0], *model.parameters()), batch[1])

    return recipe_of(Flow, rows(), loss=loss)


@ode
def continuous_flow() -> Recipe:
    """A density carried along: the divergence is estimated with a random vector."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        x, change = batch[0].clone().requires_grad_(), torch.zeros(len(batch[0]))
        noise = torch.randn_like(x)
        for number in range(12):
            slope = model(torch.tensor(number / 12), x)
            (product,) = torch.autograd.grad(slope, x, noise, create_graph=True)
            x, change = x + slope / 12, change + (product * noise).sum(1) / 12
        prior = torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(1)
        return -(prior + change).mean()

    return recipe_of(Flow, rows(), loss=loss)


@ode
def irregular_times() -> Recipe:
    """ODE-RNN: between two observations the state flows, in as many steps as their distance asks for."""

    class Latent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow, self.cell, self.head = mlp(64, 64, 128, act=nn.Tanh), nn.GRUCell(16, 64), nn.Linear(64, 16)

        def forward(self, times: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            state, last, out = seen.new_zeros(len(seen), 64), times[0, 0], []
            for number, t in enumerate(times[0]):
                for _ in range(max(1, int(((t - last) / 0.02).ceil().item()))):
                    state = state + 0.02 * self.flow(state)
                last = t
                state = self.cell(seen[:, number], state)
                out.append(self.head(state))
            return torch.stack(out, 1)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.mse_loss(model(*batch)[:, :-1], batch[1][:, 1:])

    times = torch.rand(15).sort().values.expand(64, -1).clone()
    return recipe_of(Latent, (times, torch.randn(64, 15, 16)), loss=loss)


@ode
def stochastic() -> Recipe:
    """A neural stochastic equation by Euler and Maruyama, with a path penalty."""

    class Sde(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drift, self.prior, self.spread = (mlp(17, 16, 96, act=nn.Softplus) for _ in range(3))

    def loss(model: Any, batch: Any) -> torch.Tensor:
        x, penalty = batch[0], torch.zeros(len(batch[0]))
        for number in range(25):
            here = torch.cat([x, torch.full((len(x), 1), number / 25)], 1)
            drift, spread = model.drift(here), F.softplus(model.spread(here)) + 0.05
            penalty = penalty + ((drift - model.prior(here)) / spread).square().sum(1) / 50
            x = x + drift / 25 + spread * torch.randn_like(x) / 5
        return F.mse_loss(x, batch[1]) + 1e-3 * penalty.mean()

    return recipe_of(Sde, rows(256, 16), loss=loss)


@ode
def deep_equilibrium() -> Recipe:
    """A layer repeated until it rests, and a backward that looks for a fixed point too."""

    class Rest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.inner, self.head = nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 10)
            nn.init.orthogonal_(self.inner.weight, 0.5)

        def fixed_point(self, f: Any, x: torch.Tensor) -> torch.Tensor:
            for _ in range(60):
                after = f(x)
                if (after - x).norm() < 1e-4 * after.norm():
                    return after
                x = after
            return x

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            told = self.into(x)
            with torch.no_grad():
                z = self.fixed_point(lambda z: torch.tanh(self.inner(z) + told), torch.zeros_like(told))
            z = torch.tanh(self.inner(z) + told)
            start = z.clone().detach().requires_grad_()
            again = torch.tanh(self.inner(start) + told)

            def implicit(gradient: torch.Tensor) -> torch.Tensor:
                def pulled(y: torch.Tensor) -> torch.Tensor:
                    return torch.autograd.grad(again, start, y, retain_graph=True)[0] + gradient

                return self.fixed_point(pulled, gradient)

            z.register_hook(implicit)
            return self.head(z)

    return recipe_of(Rest, (torch.randn(512, 64),))


@ode
def bouncing() -> Recipe:
    """Simulated until the ball rests on the ground: events turn its speed round."""

    class Ball(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pull, self.loss = mlp(2, 1, 256, act=nn.Tanh), nn.Parameter(torch.tensor(0.0))

        def forward(self, state: torch.Tensor) -> torch.Tensor:
            bounces, path = 0, []
            while bounces < 3 and len(path) < 150:
                height, speed = state.unbind(1)
                state = torch.stack([height + 0.05 * speed, speed - 0.05 * (1 + 0.1 * self.pull(state).squeeze(1))], 1)
                if state[:, 0].mean() < 0:
                    state = torch.stack([state[:, 0].abs(), -state[:, 1] * torch.sigmoid(self.loss)], 1)
                    bounces += 1
                path.append(state)
            return torch.stack(path, 1)

    return recipe_of(Ball, (torch.rand(64, 2),))
