"""Densities: couplings that are inverted, scores and energies, chains of samples, mixtures, series cut by chance."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from families import Samples, family, mlp
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from surefoot import Recipe, recipe_of

density = family("densities", steps=5)


def standard(z: torch.Tensor) -> torch.Tensor:
    return (-0.5 * z.square() - 0.5 * math.log(2 * math.pi)).flatten(1).sum(1)


@density
def couplings() -> Recipe:
    """Images squeezed into channels; norms that the first batch sets; half of the channels leave after each level."""

    class Set(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.bias, self.log = (nn.Parameter(torch.zeros(1, width, 1, 1)) for _ in range(2))
            self.register_buffer("is_set", torch.tensor(False))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if not self.is_set:
                with torch.no_grad():
                    self.bias.copy_(-x.mean((0, 2, 3), keepdim=True))
                    self.log.copy_(-x.std((0, 2, 3), keepdim=True).add(1e-6).log())
                    self.is_set.fill_(True)
            return (x + self.bias) * self.log.exp(), self.log.sum() * x.shape[2] * x.shape[3]

    class Turned(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            p, low, up = torch.linalg.lu(torch.linalg.qr(torch.randn(width, width)).Q)
            self.register_buffer("p", p)
            self.register_buffer("sign", up.diagonal().sign())
            self.log, self.low, self.up = (
                nn.Parameter(up.diagonal().abs().log()),
                nn.Parameter(low),
                nn.Parameter(up.triu(1)),
            )

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            eye = torch.eye(len(self.log))
            weight = self.p @ (self.low.tril(-1) + eye) @ (self.up.triu(1) + torch.diag(self.sign * self.log.exp()))
            return F.conv2d(x, weight[..., None, None]), self.log.sum() * x.shape[2] * x.shape[3]

    class Coupling(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(width // 2, 64, 3, 1, 1),
                nn.ReLU(),
                nn.Conv2d(64, 64, 1),
                nn.ReLU(),
                nn.Conv2d(64, width, 3, 1, 1),
            )
            nn.init.zeros_(self.net[-1].weight)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            kept, moved = x.chunk(2, 1)
            scale, shift = self.net(kept).chunk(2, 1)
            scale = torch.sigmoid(scale + 2)
            return torch.cat([kept, (moved + shift) * scale], 1), scale.log().flatten(1).sum(1)

    class Levels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.levels = nn.ModuleList(
                nn.ModuleList(part for _ in range(3) for part in (Set(width), Turned(width), Coupling(width)))
                for width in (12, 24)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + torch.rand_like(x) / 256
            log = torch.full((len(x),), -math.log(256) * x[0].numel())
            for number, level in enumerate(self.levels):
                x = F.pixel_unshuffle(x, 2)
                for layer in level:
                    x, change = layer(x)
                    log = log + change
                if number + 1 < len(self.levels):
                    x, left = x.chunk(2, 1)
                    log = log + standard(left)
            return (log + standard(x)) / math.log(2) / 3072

    return recipe_of(Levels, (torch.rand(8, 3, 32, 32),), loss=lambda model, batch: -model(batch[0]).mean(),
                     optimizer=lambda p: torch.optim.Adamax(p, 1e-3), max_grad_norm=50.0)  # fmt: skip


@density
def sliced_scores() -> Recipe:
    """Scores matched along random ways, at ten levels of noise, with norms that the level conditions."""
    levels = torch.exp(torch.linspace(math.log(1.0), math.log(0.05), 10))

    class Scores(nn.Module):
        def __init__(self, width: int = 48) -> None:
            super().__init__()
            self.into, self.out = nn.Conv2d(1, width, 3, 1, 1), nn.Conv2d(width, 1, 3, 1, 1)
            self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, 1, d, d) for d in (1, 2, 4, 1))
            self.gains = nn.ModuleList(nn.Embedding(10, 2 * width) for _ in range(4))

        def forward(self, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
            sigma = levels[level][:, None, None, None]
            x = self.into(x)
            for conv, gain in zip(self.convs, self.gains, strict=True):
                scale, bias = gain(level)[..., None, None].chunk(2, 1)
                x = x + conv(F.elu(F.instance_norm(x) * (1 + scale) + bias))
            return self.out(F.elu(x)) / sigma

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        level = torch.randint(0, 10, (len(batch[0]),))
        sigma = levels[level][:, None, None, None]
        noisy = (batch[0] + sigma * torch.randn_like(batch[0])).requires_grad_()
        scores = model(noisy, level)
        total = 0.5 * scores.square().flatten(1).sum(1)
        for _ in range(2):
            way = torch.randint_like(noisy, 2) * 2 - 1
            (pushed,) = torch.autograd.grad(scores, noisy, way, create_graph=True)
            total = total + (pushed * way).flatten(1).sum(1) / 2
        return (total * levels[level].square()).mean()

    return recipe_of(
        Scores, (torch.rand(8, 1, 28, 28),), loss=loss, optimizer=lambda p: torch.optim.Adam(p, 1e-4), ema=0.999
    )


@density
def energies() -> Recipe:
    """An energy whose samples walk down its slope, from those of earlier steps or from noise."""

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(1, 32, 5, 2, 4), nn.SiLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.SiLU(),
                nn.Conv2d(64, 64, 3, 2, 1), nn.SiLU(), nn.Flatten(), nn.Linear(64 * 16, 64), nn.SiLU(),
                nn.Linear(64, 1),
            )  # fmt: skip
            self.memory = [torch.rand(1, 1, 28, 28) * 2 - 1 for _ in range(32)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).squeeze(1)

    def walked(model: Any, x: torch.Tensor, steps: int) -> torch.Tensor:
        training = model.training
        model.eval()
        for parameter in model.parameters():
            parameter.requires_grad = False
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        x.requires_grad = True
        noise = torch.randn_like(x)
        for _ in range(steps):
            noise.normal_(0, 0.005)
            x.data.add_(noise.data)
            x.data.clamp_(-1, 1)
            energy = -model(x)
            energy.sum().backward()
            x.grad.data.clamp_(-0.03, 0.03)
            x.data.add_(-10 * x.grad.data)
            x.grad.detach_()
            x.grad.zero_()
            x.data.clamp_(-1, 1)
        for parameter in model.parameters():
            parameter.requires_grad = True
        model.train(training)
        torch.set_grad_enabled(before)
        return x.detach()

    def loss(model: Any, batch: Any) -> torch.Tensor:
        real = batch[0]
        fresh = sum(random.random() < 0.05 for _ in range(len(real)))
        old = random.choices(model.memory, k=len(real) - fresh)
        made = walked(model, torch.cat([*old, torch.rand(fresh, 1, 28, 28) * 2 - 1]), 20)
        model.memory = (list(made.split(1)) + model.memory)[:1000]
        real = (real + 0.005 * torch.randn_like(real)).clamp(-1, 1)
        true, false = model(torch.cat([real, made])).chunk(2)
        return 0.1 * (true.square() + false.square()).mean() + false.mean() - true.mean()

    return recipe_of(Energy, (torch.rand(48, 1, 28, 28) * 2 - 1,), loss=loss, max_grad_norm=0.1,
                     optimizer=lambda p: torch.optim.Adam(p, 1e-4, (0.0, 0.999)))  # fmt: skip


class Undone(torch.autograd.Function):
    """A chain of blocks that keeps only its result: backward finds the inputs from the outputs, block by block."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, blocks: nn.ModuleList, *parameters: torch.Tensor) -> Any:
        log = x.new_zeros(len(x))
        with torch.no_grad():
            for block in blocks:
                x, change = block(x)
                log = log + change
        context.blocks, context.out = blocks, x.detach()
        return x, log

    @staticmethod
    def backward(context: Any, pull: torch.Tensor, log_pull: torch.Tensor) -> Any:
        out, slopes = context.out, []
        for block in reversed(context.blocks):
            with torch.no_grad():
                x = block.inverse(out)
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                y, change = block(leaf)
                own = tuple(block.parameters())
                found = torch.autograd.grad((y, change), (leaf, *own), (pull, log_pull))
            pull, out = found[0], x
            slopes = [*found[1:], *slopes]
        del context.out
        return pull, None, *slopes


@density
def undone_layers() -> Recipe:
    """Twelve couplings of which no activation is kept: their inputs are computed back from their outputs."""

    class Affine(nn.Module):
        def __init__(self, width: int, swapped: bool) -> None:
            super().__init__()
            self.net, self.swapped = mlp(width // 2, width, 192), swapped
            nn.init.zeros_(self.net[-1].weight)

        def parts(self, x: torch.Tensor) -> Any:
            return x.chunk(2, 1)[::-1] if self.swapped else x.chunk(2, 1)

        def joined(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.cat([b, a] if self.swapped else [a, b], 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            kept, moved = self.parts(x)
            scale, shift = self.net(kept).chunk(2, 1)
            scale = 0.5 * scale.tanh()
            return self.joined(kept, moved * scale.exp() + shift), scale.sum(1)

        def inverse(self, y: torch.Tensor) -> torch.Tensor:
            kept, moved = self.parts(y)
            scale, shift = self.net(kept).chunk(2, 1)
            return self.joined(kept, (moved - shift) * torch.exp(-0.5 * scale.tanh()))

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Affine(64, bool(number % 2)) for number in range(12))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z, log = Undone.apply(x, self.blocks, *self.blocks.parameters())
            return standard(z) + log

    return recipe_of(
        Chain, (torch.randn(800, 64),), loss=lambda model, batch: -model(batch[0].requires_grad_()).mean() / 64
    )


@density
def drawn_strokes() -> Recipe:
    """Drawings of any number of strokes: a code, a decoder, and a mixture of twenty Gaussians for each pen move."""

    class Sketch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.code = nn.LSTM(5, 96, bidirectional=True, batch_first=True), nn.Linear(192, 2 * 32)
            self.start, self.decoder, self.head = (
                nn.Linear(32, 256),
                nn.LSTM(5 + 32, 128, batch_first=True),
                nn.Linear(128, 20 * 6 + 3),
            )

        def forward(self, strokes: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            packed = nn.utils.rnn.pack_padded_sequence(strokes[:, 1:], lengths, batch_first=True, enforce_sorted=False)
            _, (last, _) = self.encoder(packed)
            mean, log = self.code(torch.cat([last[0], last[1]], 1)).chunk(2, 1)
            z = mean + (log / 2).exp() * torch.randn_like(mean)
            state = tuple(each.contiguous() for each in self.start(z).tanh()[None].chunk(2, -1))
            out, _ = self.decoder(
                torch.cat([strokes[:, :-1], z.unsqueeze(1).expand(-1, strokes.shape[1] - 1, -1)], -1), state
            )
            kl = -0.5 * (1 + log - mean.square() - log.exp()).mean()
            return self.head(out), kl

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        strokes, lengths = batch
        out, kl = model(strokes, lengths)
        aims, pens = strokes[:, 1:, :2], strokes[:, 1:, 2:].argmax(-1)
        real = torch.arange(out.shape[1]) < lengths[:, None]
        weights, mean_x, mean_y, log_x, log_y, tie = out[..., :-3][real].chunk(6, -1)
        x, y = aims[real].unsqueeze(-1).unbind(1)
        tie = tie.tanh() * 0.95
        dx, dy = (x - mean_x) / log_x.exp(), (y - mean_y) / log_y.exp()
        free = 1 - tie.square()
        log = -(dx.square() + dy.square() - 2 * tie * dx * dy) / (2 * free)
        log = log - math.log(2 * math.pi) - log_x - log_y - 0.5 * free.log()
        moved = -torch.logsumexp(weights.log_softmax(-1) + log, -1)
        drawn = F.cross_entropy(out[..., -3:].flatten(0, 1), pens.flatten())
        return moved.sum() / real.numel() + drawn + 0.5 * kl.clamp(min=0.2)

    def sample(numbers: random.Random) -> torch.Tensor:
        length = numbers.randint(10, 90)
        pens = torch.zeros(length, 3)
        pens[torch.arange(length), torch.tensor([int(numbers.random() < 0.15) for _ in range(length)])] = 1
        pens[-1] = torch.tensor([0.0, 0.0, 1.0])
        begin = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]])
        return torch.cat([begin, torch.cat([torch.randn(length, 2), pens], 1)])

    def collate(samples: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        padding = pad_sequence(samples, batch_first=True)
        return padding, torch.tensor([len(each) - 1 for each in samples])

    return Recipe(model=Sketch, data=lambda: Samples(500, sample), collate=collate, loss=loss, max_grad_norm=1.0,
                  optimizer=lambda p: torch.optim.Adam(p, 1e-3), micro_batch_size=32, max_steps=100)  # fmt: skip


@density
def series_cut_by_chance() -> Recipe:
    """Residual blocks with bounded slopes, whose determinants are series of a length that is drawn each time."""

    class Bounded(nn.Linear):
        """A layer whose largest singular value stays below 0.9, by iterations until they change little."""

        def __init__(self, into: int, out: int) -> None:
            super().__init__(into, out)
            self.register_buffer("u", F.normalize(torch.randn(out), dim=0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                size = self.weight.new_zeros(())
                for _ in range(20):
                    v = F.normalize(self.weight.t() @ self.u, dim=0)
                    raw = self.weight @ v
                    after = raw.norm()
                    self.u.copy_(raw / after)
                    if (after - size).abs() < 1e-3 * after:
                        break
                    size = after
            value = self.u @ self.weight @ v.clone()
            return F.linear(x, self.weight / torch.clamp(value / 0.9, min=1.0), self.bias)

    class Block(nn.Module):
        def __init__(self, width: int = 24) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Bounded(a, b) for a, b in ((width, 128), (128, 128), (128, width)))

        def residual(self, x: torch.Tensor) -> torch.Tensor:
            for number, layer in enumerate(self.layers):
                x = layer(x if number == 0 else x * torch.sigmoid(x) / 1.1)
            return x

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = x if x.requires_grad else x.requires_grad_()
            change = self.residual(x)
            terms = 2 + int(torch.distributions.Geometric(0.5).sample())
            way = torch.randn_like(x)
            pushed, log = way, x.new_zeros(len(x))
            for k in range(1, terms + 1):
                (pushed,) = torch.autograd.grad(change, x, pushed, create_graph=True)
                share = 1.0 if k <= 2 else 0.5 ** (k - 2)
                log = log + (-1) ** (k + 1) / k / share * (pushed * way).sum(1)
            return x + change, log

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(len(x))
            for block in self.blocks:
                x, log = block(x)
                total = total + log
            return standard(x) + total

    return recipe_of(Flow, (torch.randn(400, 24),), loss=lambda model, batch: -model(batch[0].clone()).mean())
