"""Layers over time without a table of scores: selective scans, decays, chunks, fast weights, kernels, prefix sums."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from families import family
from torch import nn

from surefoot import Recipe, recipe_of

linear = family("linear_sequences")
WORDS = 512


class Language(nn.Module):
    """Blocks with a residual, between an embedding and its transpose."""

    def __init__(self, block: Any, width: int = 96, depth: int = 2) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(WORDS, width), nn.ModuleList(block(width) for _ in range(depth))
        self.norms, self.last = nn.ModuleList(nn.RMSNorm(width) for _ in range(depth)), nn.RMSNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x))
        return self.head(self.last(x))


def next_word(model: nn.Module, batch: Any) -> torch.Tensor:
    (tokens,) = batch
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def on_text(block: Any, length: int = 65, samples: int = 8, **settings: Any) -> Recipe:
    tokens = torch.randint(0, WORDS, (samples, length))
    return recipe_of(lambda: Language(block), (tokens,), **{"loss": next_word, **settings})


@linear
def selective_scan() -> Recipe:
    """States whose decay each word chooses, stepped through in a loop; decays and gains have an optimizer group."""

    class Selective(nn.Module):
        def __init__(self, width: int, states: int = 8) -> None:
            super().__init__()
            inner, self.states = 2 * width, states
            self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
            self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
            self.told, self.pace = nn.Linear(inner, 8 + 2 * states, bias=False), nn.Linear(8, inner)
            self.decay = nn.Parameter(torch.arange(1.0, states + 1).repeat(inner, 1).log())
            self.skip = nn.Parameter(torch.ones(inner))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x, gate = self.into(x).chunk(2, -1)
            x = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            pace, b, c = self.told(x).split((8, self.states, self.states), -1)
            pace = F.softplus(self.pace(pace))
            kept = torch.exp(pace.unsqueeze(-1) * -self.decay.exp())
            added = pace.unsqueeze(-1) * b.unsqueeze(2) * x.unsqueeze(-1)
            state, out = torch.zeros_like(kept[:, 0]), []
            for t in range(x.shape[1]):
                state = kept[:, t] * state + added[:, t]
                out.append((state * c[:, t, None]).sum(-1))
            return self.out((torch.stack(out, 1) + self.skip * x) * F.silu(gate))

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        every = list(parameters)
        small = {"params": [p for p in every if p.dim() <= 1], "weight_decay": 0.0}
        return torch.optim.AdamW([{"params": [p for p in every if p.dim() > 1]}, small], lr=1e-3)

    return on_text(Selective, 49, optimizer=optimizer, max_grad_norm=1.0)


class Weighted(torch.autograd.Function):
    """Means of all values before, with weights that fall by a rate of each channel; both passes are loops over time."""

    @staticmethod
    def forward(context: Any, w: torch.Tensor, u: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, top, low = torch.empty_like(v), torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0])
        most = torch.full_like(top, -1e38)
        for t in range(k.shape[1]):
            here = torch.maximum(most, u + k[:, t])
            a, b = torch.exp(most - here), torch.exp(u + k[:, t] - here)
            out[:, t] = (a * top + b * v[:, t]) / (a * low + b)
            after = torch.maximum(most + w, k[:, t])
            a, b = torch.exp(most + w - after), torch.exp(k[:, t] - after)
            top, low, most = a * top + b * v[:, t], a * low + b, after
        context.save_for_backward(w, u, k, v)
        return out

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        w, u, k, v = context.saved_tensors
        with torch.enable_grad():
            w, u, k, v = (each.detach().requires_grad_() for each in (w, u, k, v))
            top, low, out = torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0]), []
            for t in range(k.shape[1]):
                now = torch.exp(u + k[:, t])
                out.append((top + now * v[:, t]) / (low + now))
                kept, added = torch.exp(w), torch.exp(k[:, t])
                top, low = kept * top + added * v[:, t], kept * low + added
            return torch.autograd.grad(torch.stack(out, 1), (w, u, k, v), gradient)


@linear
def time_mixing() -> Recipe:
    """Words mixed with the word before, weighted means by a function of its own, and squared gates."""

    class Mixing(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.decay, self.first = nn.Parameter(torch.linspace(-5, 1, width)), nn.Parameter(torch.zeros(width))
            self.shares = nn.Parameter(torch.rand(5, width))
            self.k, self.v, self.r, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.inner, self.outer, self.gate = (
                nn.Linear(width, 4 * width),
                nn.Linear(4 * width, width),
                nn.Linear(width, width),
            )
            self.norm = nn.LayerNorm(width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def mixed(x: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
                return x * share + F.pad(x, (0, 0, 1, -1)) * (1 - share)

            k, v, r = (
                layer(mixed(x, share)) for layer, share in zip((self.k, self.v, self.r), self.shares, strict=False)
            )
            x = x + self.out(r.sigmoid() * Weighted.apply(-self.decay.exp(), self.first, k, v))
            y = self.norm(x)
            return x + self.gate(mixed(y, self.shares[4])).sigmoid() * self.outer(
                F.relu(self.inner(mixed(y, self.shares[3]))).square()
            )

    return on_text(Mixing, 49)


@linear
def retention_in_chunks() -> Recipe:
    """Within a chunk a table with decay, from chunk to chunk a state, which goes on to the next batch too."""

    class Retention(nn.Module):
        def __init__(self, width: int, heads: int = 4, chunk: int = 16, samples: int = 8) -> None:
            super().__init__()
            self.heads, self.chunk, size = heads, chunk, width // heads
            self.parts, self.gate, self.out = (
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
                nn.Linear(width, width),
            )
            self.norm = nn.GroupNorm(heads, width)
            self.register_buffer("decay", 1 - 2 ** (-5.0 - torch.arange(heads)))
            self.register_buffer("state", torch.zeros(samples, heads, size, size))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.parts(x).chunk(3, -1))
            state, out = self.state.clone(), []
            for a, b, c in zip(q.split(self.chunk, 2), k.split(self.chunk, 2), v.split(self.chunk, 2), strict=True):
                places = torch.arange(a.shape[2])
                gaps = (places[:, None] - places).float()
                table = torch.where(gaps >= 0, self.decay[:, None, None] ** gaps.clamp(min=0), 0)
                inside = (a @ b.transpose(2, 3) * table) @ c
                across = a @ state * (self.decay[:, None] ** (places + 1))[..., None]
                out.append(inside + across)
                left = (self.decay[:, None] ** (len(places) - 1 - places))[..., None]
                state = self.decay[:, None, None] ** len(places) * state + (b * left).transpose(2, 3) @ c / 24**0.5
            if self.training:
                self.state.copy_(state.detach())
            flat = torch.cat(out, 2).transpose(1, 2).flatten(2)
            return self.out(F.silu(self.gate(x)) * self.norm(flat.flatten(0, 1)).view_as(x))

    return on_text(Retention)


class Recomputed(torch.autograd.Function):
    """A chunk by hand: only its inputs are kept, and backward runs it once more."""

    @staticmethod
    def forward(context: Any, run: Any, *inputs: torch.Tensor) -> Any:
        context.run = run
        context.save_for_backward(*inputs)
        with torch.no_grad():
            return run(*inputs)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        inputs = [each.detach().requires_grad_() for each in context.saved_tensors]
        with torch.enable_grad():
            outputs = context.run(*inputs)
        torch.autograd.backward(outputs, gradients)
        return None, *(each.grad for each in inputs)


@linear
def delta_rule() -> Recipe:
    """Fast weights that are corrected word by word, in chunks that backward computes again."""

    def run(state: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rate: torch.Tensor) -> Any:
        out = []
        for t in range(q.shape[2]):
            key = k[:, :, t]
            old = torch.einsum("bhij,bhi->bhj", state, key)
            state = state + torch.einsum("bhi,bhj->bhij", key, rate[:, :, t, None] * (v[:, :, t] - old))
            out.append(torch.einsum("bhij,bhi->bhj", state, q[:, :, t]))
        return state, torch.stack(out, 2)

    class Delta(nn.Module):
        def __init__(self, width: int, heads: int = 3) -> None:
            super().__init__()
            self.heads, self.parts, self.rate = heads, nn.Linear(width, 3 * width), nn.Linear(width, heads)
            self.short, self.out = (
                nn.Conv1d(3 * width, 3 * width, 4, padding=3, groups=3 * width),
                nn.Linear(width, width),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = F.silu(self.short(self.parts(x).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts.chunk(3, -1))
            q, k, rate = F.normalize(q, dim=-1), F.normalize(k, dim=-1), self.rate(x).sigmoid().transpose(1, 2)
            state, out = x.new_zeros(len(x), self.heads, q.shape[-1], q.shape[-1]), []
            for start in range(0, x.shape[1], 12):
                part = (each[:, :, start : start + 12] for each in (q, k, v, rate))
                state, found = Recomputed.apply(run, state, *part)
                out.append(found)
            return self.out(torch.cat(out, 2).transpose(1, 2).flatten(2))

    return on_text(Delta, 49)


@linear
def diagonal_kernel() -> Recipe:
    """States of complex numbers, of which a kernel is made that runs over the whole series by Fourier transforms."""

    class Diagonal(nn.Module):
        def __init__(self, width: int, states: int = 32) -> None:
            super().__init__()
            self.pace = nn.Parameter(torch.rand(width) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
            self.out_weights = nn.Parameter(torch.randn(width, states, 2) * 0.5**0.5)
            self.fall, self.turn = (
                nn.Parameter(torch.full((width, states), 0.5).log()),
                nn.Parameter(math.pi * torch.arange(states).repeat(width, 1)),
            )
            self.skip, self.norm = nn.Parameter(torch.randn(width)), nn.LayerNorm(width)
            self.mix = nn.Sequential(nn.Conv1d(width, 2 * width, 1), nn.GLU(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x, length = self.norm(x).transpose(1, 2), x.shape[1]
            rates = torch.complex(-self.fall.exp(), self.turn)
            steps = rates * self.pace.exp().unsqueeze(1)
            weights = torch.view_as_complex(self.out_weights) * (steps.exp() - 1) / rates
            powers = torch.exp(steps.unsqueeze(-1) * torch.arange(length))
            kernel = 2 * torch.einsum("hn,hnl->hl", weights, powers).real
            y = torch.fft.irfft(torch.fft.rfft(x, 2 * length) * torch.fft.rfft(kernel, 2 * length), 2 * length)[
                ..., :length
            ]
            return self.mix(F.dropout1d(F.gelu(y + self.skip[:, None] * x), 0.1, self.training)).transpose(1, 2)

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.blocks, self.head = (
                nn.Linear(3, 64),
                nn.ModuleList(Diagonal(64) for _ in range(3)),
                nn.Linear(64, 10),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.into(x)
            for block in self.blocks:
                x = x + block(x)
            return self.head(x.mean(1))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return recipe_of(Classifier, (torch.randn(8, 256, 3), torch.randint(0, 10, (8,))), loss=loss)


@linear
def logarithmic_scan() -> Recipe:
    """Gated averages found in as many rounds as the length has doublings, beside attention in a window."""

    def scanned(kept: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        gap = 1
        while gap < kept.shape[1]:
            before = F.pad(added, (0, 0, gap, 0))[:, : added.shape[1]]
            added = added + kept * before
            kept = kept * F.pad(kept, (0, 0, gap, 0), value=1.0)[:, : kept.shape[1]]
            gap *= 2
        return added

    class Hybrid(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.into, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
            self.decay, self.out = nn.Parameter(torch.linspace(-4.3, -9, width)), nn.Linear(width, width)
            self.parts, self.joined, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.RMSNorm(width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, side = self.into(x).chunk(2, -1)
            reset, keep = self.gates(y).sigmoid().chunk(2, -1)
            log = -8 * keep * F.softplus(self.decay)
            state = scanned(log.exp(), torch.sqrt(1 - (2 * log).exp() + 1e-6) * reset * y)
            x = x + self.out(state * F.gelu(side))
            q, k, v = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in self.parts(self.norm(x)).chunk(3, -1))
            gaps = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=(gaps >= 0) & (gaps < 24))
            return self.joined(mixed.transpose(1, 2).flatten(2))

    def batch(number: int, size: int) -> tuple[torch.Tensor]:
        return (torch.randint(0, WORDS, (size, (33, 65, 97, 129)[min(number, 3)])),)

    return Recipe(model=lambda: Language(Hybrid), data=lambda: batch, loss=next_word, optimizer=torch.optim.AdamW,
                  micro_batch_size=8, max_steps=100)  # fmt: skip
