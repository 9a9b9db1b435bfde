"""Forecasts of series: residual stacks, series of any length, quantiles, queries that are chosen, windows that grow."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from families import Samples, family
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence
from torch.optim.swa_utils import AveragedModel

from surefoot import Recipe, recipe_of

forecast = family("forecasting", steps=5)


def series(samples: int, length: int, channels: int = 1) -> torch.Tensor:
    t = torch.arange(length) / 24 * 2 * math.pi
    waves = torch.rand(samples, 1, channels) * torch.sin(t[:, None] + 6 * torch.rand(samples, 1, channels))
    return waves + 0.1 * torch.randn(samples, length, channels)


@forecast
def basis_stacks() -> Recipe:
    """Blocks that each explain a part of the past, as trend, season or anything, and pass on what is left."""

    class Block(nn.Module):
        def __init__(self, kind: str, past: int = 120, future: int = 24) -> None:
            super().__init__()
            self.kind = kind
            self.body = nn.Sequential(
                *[part for n in range(4) for part in (nn.Linear(256 if n else past, 256), nn.ReLU())]
            )
            t, both = torch.arange(past + future) / future, (past, future)
            if kind == "trend":
                basis = torch.stack([t**power for power in range(4)])
            elif kind == "season":
                turns = 2 * math.pi * torch.arange(1, future // 2)[:, None] * t
                basis = torch.cat([torch.ones(1, past + future), turns.cos(), turns.sin()])
            else:
                basis = torch.empty(0, past + future)
            self.register_buffer("basis", basis)
            self.sizes, width = both, len(basis)
            self.back = nn.Linear(256, width or past, bias=kind == "any")
            self.ahead = nn.Linear(256, width or future, bias=kind == "any")

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = self.body(x)
            back, ahead = self.back(x), self.ahead(x)
            if self.kind == "any":
                return back, ahead
            past, future = self.basis.split(self.sizes, 1)
            return back @ past, ahead @ future

    class Stacks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            shared = {kind: Block(kind) for kind in ("trend", "season")}
            self.blocks = nn.ModuleList(
                [shared["trend"]] * 3 + [shared["season"]] * 3 + [Block("any") for _ in range(2)]
            )

        def forward(self, past: torch.Tensor) -> torch.Tensor:
            left, told = past.flip(1), past[:, -1:].expand(-1, 24)
            for block in self.blocks:
                back, ahead = block(left)
                left, told = left - back, told + ahead
            return told

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        past, future = batch[0].squeeze(-1).split((120, 24), 1)
        told = model(past)
        return (200 * (told - future).abs() / (told.abs() + future.abs()).detach().clamp(min=1e-3)).mean()

    return recipe_of(Stacks, (series(512, 144),), loss=loss, optimizer=lambda p: torch.optim.Adam(p, 1e-3))


@forecast
def series_of_any_length() -> Recipe:
    """Counts of shops that opened at any time: packed rows, a scale of each, and a negative binomial."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shops, self.body = nn.Embedding(1000, 16), nn.LSTM(1 + 4 + 16, 96, 3, dropout=0.1)
            self.head = nn.Linear(96, 2)

        def forward(self, rows: list[torch.Tensor], shops: torch.Tensor) -> torch.Tensor:
            scales = torch.stack([1 + row[:, 0].mean() for row in rows])
            into = []
            for row, scale, shop in zip(rows, scales, self.shops(shops), strict=True):
                lagged = torch.cat([torch.zeros(1, 1), row[:-1, :1] / scale])
                into.append(torch.cat([lagged, row[:, 1:], shop.expand(len(row), -1)], 1))
            out, lengths = pad_packed_sequence(self.body(pack_sequence(into, enforce_sorted=False))[0])
            total = torch.zeros(())
            for number, (row, scale, length) in enumerate(zip(rows, scales, lengths.tolist(), strict=True)):
                mean, shape = F.softplus(self.head(out[:length, number])).unbind(1)
                mean, count = mean * scale + 1e-3, scale.sqrt() / (shape + 1e-3)
                policy = torch.distributions.NegativeBinomial(count, logits=(mean / count).log())
                total = total - policy.log_prob(row[:, 0]).sum()
            return total

    def sample(numbers: random.Random) -> Any:
        length = numbers.randint(20, 200)
        t = torch.arange(length) + numbers.randint(0, 365)
        counts = torch.poisson(numbers.choice((1.0, 5.0, 40.0)) * (1.2 + (t / 7 * 2 * math.pi).sin()))
        calendar = torch.stack([(t / p * 2 * math.pi).sin() for p in (7, 30, 91, 365)], 1)
        return torch.cat([counts.unsqueeze(1), calendar], 1), numbers.randrange(1000)

    def collate(samples: list[Any]) -> Any:
        rows, shops = zip(*samples, strict=True)
        return list(rows), torch.tensor(shops)

    def loss(model: nn.Module, batch: Any) -> tuple[torch.Tensor, int]:
        return model(*batch), sum(len(each) for each in batch[0])

    return Recipe(model=Counts, data=lambda: Samples(600, sample), collate=collate, loss=loss, max_grad_norm=10.0,
                  optimizer=lambda p: torch.optim.Adam(p, 1e-3), micro_batch_size=16, max_steps=100)  # fmt: skip


class Gated(nn.Module):
    """A gated residual network, which may be told of a context."""

    def __init__(self, into: int, width: int, out: int | None = None, told: bool = False) -> None:
        super().__init__()
        out = out or width
        self.skip = nn.Linear(into, out) if into != out else nn.Identity()
        self.one, self.two, self.gate = nn.Linear(into, width), nn.Linear(width, width), nn.Linear(width, 2 * out)
        self.context, self.norm = nn.Linear(width, width, bias=False) if told else None, nn.LayerNorm(out)

    def forward(self, x: torch.Tensor, told: torch.Tensor | None = None) -> torch.Tensor:
        y = self.one(x)
        if self.context is not None and told is not None:
            y = y + self.context(told)
        y = F.dropout(self.two(F.elu(y)), 0.1, self.training)
        return self.norm(self.skip(x) + F.glu(self.gate(y), -1))


@forecast
def quantiles_of_a_mixture() -> Recipe:
    """Variables that are weighed at each time, an LSTM that the shop begins, attention, and three quantiles."""

    class Weighed(nn.Module):
        def __init__(self, count: int, width: int) -> None:
            super().__init__()
            self.into = nn.ModuleList(nn.Linear(1, width) for _ in range(count))
            self.each = nn.ModuleList(Gated(width, width) for _ in range(count))
            self.weights = Gated(count * width, width, count, told=True)

        def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
            parts = [layer(part) for layer, part in zip(self.into, x.split(1, -1), strict=True)]
            weights = self.weights(torch.cat(parts, -1), told.unsqueeze(1)).softmax(-1).unsqueeze(-2)
            return (torch.stack([net(part) for net, part in zip(self.each, parts, strict=True)], -1) * weights).sum(-1)

    class Fusion(nn.Module):
        def __init__(self, width: int = 48) -> None:
            super().__init__()
            self.shops, self.told = nn.Embedding(100, width), nn.ModuleList(Gated(width, width) for _ in range(4))
            self.past, self.future = Weighed(6, width), Weighed(3, width)
            self.encoder, self.decoder = (nn.LSTM(width, width, batch_first=True) for _ in range(2))
            self.enrich, self.query, self.key = (
                Gated(width, width, told=True),
                nn.Linear(width, width),
                nn.Linear(width, width),
            )
            self.value, self.mix, self.last = (
                nn.Linear(width, width // 4),
                nn.Linear(width // 4, width),
                Gated(width, width),
            )
            self.norms, self.head = nn.ModuleList(nn.LayerNorm(width) for _ in range(2)), nn.Linear(width, 3)

        def forward(self, past: torch.Tensor, future: torch.Tensor, shops: torch.Tensor) -> torch.Tensor:
            chosen, hidden, cell, rich = (net(self.shops(shops)) for net in self.told)
            a, b = self.past(past, chosen), self.future(future, chosen)
            one, state = self.encoder(a, (hidden[None].contiguous(), cell[None].contiguous()))
            two, _ = self.decoder(b, state)
            x = self.norms[0](torch.cat([a, b], 1) + torch.cat([one, two], 1))
            x = self.enrich(x, rich.unsqueeze(1))
            length, ahead = x.shape[1], future.shape[1]
            query = self.query(x[:, -ahead:]).unflatten(-1, (4, -1)).transpose(1, 2)
            key = self.key(x).unflatten(-1, (4, -1)).permute(0, 2, 3, 1)
            later = torch.arange(length) > torch.arange(length - ahead, length)[:, None]
            table = (query @ key / 12**0.5).masked_fill(later, -torch.inf).softmax(-1)
            mixed = (table @ self.value(x).unsqueeze(1)).mean(1)
            return self.head(self.last(self.norms[1](x[:, -ahead:] + self.mix(mixed))))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        past, future, shops, aims = batch
        missed = aims - model(past, future, shops)
        levels = torch.tensor([0.1, 0.5, 0.9])
        return torch.max((levels - 1) * missed, levels * missed).sum(-1).mean()

    batch = series(32, 72, 6), series(32, 24, 3), torch.randint(0, 100, (32,)), series(32, 24)
    return recipe_of(Fusion, batch, loss=loss, max_grad_norm=0.1, optimizer=lambda p: torch.optim.Adam(p, 1e-3))


@forecast
def chosen_queries() -> Recipe:
    """Only the queries that stand out, by a sample of keys, look at all keys; layers halve the length."""

    class Chosen(nn.Module):
        def __init__(self, width: int = 64) -> None:
            super().__init__()
            self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in self.parts(x).chunk(3, -1))
            length = q.shape[2]
            count = min(length, 5 * math.ceil(math.log(length + 1)))
            drawn = torch.randint(length, (length, count))
            sampled = k.unsqueeze(-3).expand(-1, -1, length, -1, -1)[:, :, torch.arange(length).unsqueeze(1), drawn]
            scores = (q.unsqueeze(-2) @ sampled.transpose(-2, -1)).squeeze(-2)
            top = (scores.max(-1).values - scores.sum(-1) / length).topk(count, sorted=False).indices
            picked = q.gather(2, top.unsqueeze(-1).expand(-1, -1, -1, q.shape[-1]))
            seen = (picked @ k.transpose(-2, -1) / 4).softmax(-1) @ v
            context = v.mean(-2, keepdim=True).expand(-1, -1, length, -1).clone()
            samples, heads = torch.arange(len(x))[:, None, None], torch.arange(4)[None, :, None]
            context[samples, heads, top] = seen
            return self.out(context.transpose(1, 2).flatten(2))

    class Informed(nn.Module):
        def __init__(self, width: int = 64) -> None:
            super().__init__()
            self.into, self.layers = (
                nn.Conv1d(7, width, 3, padding=1, padding_mode="circular"),
                nn.ModuleList(Chosen() for _ in range(3)),
            )
            self.inner = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Dropout(0.05), nn.Linear(256, width))
                for _ in range(3)
            )
            self.halve = nn.ModuleList(
                nn.Sequential(
                    nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.ELU(), nn.MaxPool1d(3, 2, 1)
                )
                for _ in range(2)
            )
            self.norm, self.cross = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
            self.ahead, self.head = nn.Parameter(torch.randn(1, 48, width) * 0.02), nn.Linear(width, 7)

        def forward(self, past: torch.Tensor) -> torch.Tensor:
            x = self.into(past.transpose(1, 2)).transpose(1, 2)
            for number, (layer, inner) in enumerate(zip(self.layers, self.inner, strict=True)):
                x = self.norm(x + layer(x))
                x = x + inner(x)
                if number < 2:
                    x = self.halve[number](x.transpose(1, 2)).transpose(1, 2)
            return self.head(self.cross(self.ahead.expand(len(x), -1, -1), x, x)[0])

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        past, future = batch[0].split((96, 48), 1)
        return F.mse_loss(model(past), future)

    return recipe_of(Informed, (series(16, 144, 7),), loss=loss, optimizer=lambda p: torch.optim.Adam(p, 1e-4))


@forecast
def averaged_patches() -> Recipe:
    """Each channel by itself in patches, normalised and restored; the weights are averaged from the third step on."""

    class Reversible(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.gain, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

        def taken(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = x.mean(1, keepdim=True).detach()
            self.spread = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
            return (x - self.mean) / self.spread * self.gain + self.bias

        def given(self, x: torch.Tensor) -> torch.Tensor:
            return (x - self.bias) / (self.gain + 1e-10) * self.spread + self.mean

    class Net(nn.Module):
        def __init__(self, width: int = 64) -> None:
            super().__init__()
            self.norm, self.into = Reversible(8), nn.Linear(16, width)
            self.places = nn.Parameter(torch.rand(23, width) * 0.04 - 0.02)
            layer = nn.TransformerEncoderLayer(width, 4, 128, 0.2, "gelu", batch_first=True)
            self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(23 * width, 24)

        def forward(self, past: torch.Tensor) -> torch.Tensor:
            x = F.pad(self.norm.taken(past).transpose(1, 2), (0, 8), mode="replicate").unfold(2, 16, 8)
            x = (self.into(x) + self.places).flatten(0, 1)
            x = self.head(self.body(x).flatten(1)).view(len(past), 8, 24)
            return self.norm.given(x.transpose(1, 2))

    def step(networks: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        net, average = networks["net"], networks["average"]
        past, future = batch[0].split((184, 24), 1)
        loss = F.mse_loss(net(past), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.calls += 1
        if average.calls >= 3:
            average.update_parameters(net)
            with torch.no_grad():
                average(past[:4])
        return loss

    def networks() -> dict[str, nn.Module]:
        net = Net()
        average = AveragedModel(net).requires_grad_(False)
        average.register_buffer("calls", torch.zeros((), dtype=torch.long))
        return {"net": net, "average": average}

    return recipe_of(networks, (series(16, 208, 8),), step=step,
                     optimizer=lambda n: torch.optim.AdamW(n["net"].parameters(), lr=1e-3))  # fmt: skip


@forecast
def windows_that_grow() -> Recipe:
    """Walking forward: each step sees a longer past, and the forecast is fed back to itself more and more often."""

    class Dilated(nn.Module):
        def __init__(self, width: int = 48) -> None:
            super().__init__()
            self.into, self.layers = nn.Conv1d(4, width, 1), nn.ModuleList()
            for level in range(5):
                pair = [weight_norm(nn.Conv1d(width, width, 3, dilation=2**level)) for _ in range(2)]
                self.layers.append(nn.ModuleList(pair))
            self.cell, self.head = nn.GRUCell(4, width), nn.Linear(width, 4)

        def forward(self, past: torch.Tensor, future: torch.Tensor, free: float) -> torch.Tensor:
            x = self.into(past.transpose(1, 2))
            for level, (one, two) in enumerate(self.layers):
                gap = 2 * 2**level
                y = F.dropout(F.relu(one(F.pad(x, (gap, 0)))), 0.1, self.training)
                x = F.relu(x + F.relu(two(F.pad(y, (gap, 0)))))
            state, last, out = x[..., -1], past[:, -1], []
            for t in range(future.shape[1]):
                state = self.cell(last, state)
                told = last + self.head(state)
                out.append(told)
                last = told if random.random() < free else future[:, t]
            return torch.stack(out, 1)

    def batch(number: int, size: int) -> dict[str, Any]:
        rows = [series(1, 64 + 48 * min(number, 5) + 16 - random.randrange(8), 4)[0] for _ in range(size)]
        whole = pad_sequence([row.flip(0) for row in rows], batch_first=True).flip(1)
        return {"past": whole[:, :-16], "future": whole[:, -16:], "free": min(1.0, number / 5)}

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.huber_loss(model(**batch), batch["future"])

    return Recipe(model=Dilated, data=lambda: batch, loss=loss, optimizer=torch.optim.Adam, micro_batch_size=24,
                  max_steps=100)  # fmt: skip
