"""Models of clicks: tables larger than the network, bags and histories of any length, several tasks, sampled items."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from families import Samples, family, mlp
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from surefoot import Recipe, recipe_of

clicks = family("click_models")


@clicks
def dlrm() -> Recipe:
    """Bags of ids in tables with sparse gradients, dense features, all pairs of them, and two optimizers."""
    sizes = (60_000, 20_000, 5_000, 400, 12)

    class Dlrm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(size, 32, mode="sum", sparse=True) for size in sizes)
            for table in self.tables:
                bound = 1 / math.sqrt(table.num_embeddings)
                nn.init.uniform_(table.weight, -bound, bound)
            self.bottom, self.top = mlp(13, 32, 128), mlp(32 + 15, 1, 256)
            self.register_buffer("pairs", torch.tril_indices(6, 6, -1))

        def forward(self, dense: torch.Tensor, bags: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
            x = self.bottom(dense)
            found = [table(ids, offsets) for table, (ids, offsets) in zip(self.tables, bags, strict=True)]
            parts = torch.stack([x, *found], 1)
            products = torch.bmm(parts, parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([x, products], 1)).squeeze(1)

    def sample(numbers: random.Random) -> Any:
        bags = [[int(size * numbers.random() ** 3) for _ in range(numbers.randint(1, 12))] for size in sizes]
        return [numbers.gauss(0, 1) for _ in range(13)], bags, float(numbers.random() < 0.2)

    def collate(samples: list[Any]) -> Any:
        dense, bags, clicked = zip(*samples, strict=True)
        joined = []
        for column in zip(*bags, strict=True):
            lengths = torch.tensor([0, *(len(each) for each in column[:-1])])
            joined.append((torch.tensor([number for each in column for number in each]), lengths.cumsum(0)))
        return torch.tensor(dense), joined, torch.tensor(clicked)

    def optimizers(model: Any) -> dict[str, torch.optim.Optimizer]:
        dense = [*model.bottom.parameters(), *model.top.parameters()]
        return {
            "dense": torch.optim.Adagrad(dense, lr=0.02),
            "tables": torch.optim.SparseAdam(list(model.tables.parameters()), lr=1e-3),
        }

    def step(model: Any, optimizers: Any, batch: Any) -> torch.Tensor:
        loss = F.binary_cross_entropy_with_logits(model(batch[0], batch[1]), batch[2])
        for each in optimizers.values():
            each.zero_grad()
        loss.backward()
        for each in optimizers.values():
            each.step()
        return loss

    return Recipe(model=Dlrm, data=lambda: Samples(4000, sample), collate=collate, step=step, optimizer=optimizers,
                  micro_batch_size=256, max_steps=100)  # fmt: skip


@clicks
def two_towers() -> Recipe:
    """In-batch negatives, corrected by how often each item was seen: a hashed estimate that the step keeps."""

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(50_000, 48), nn.Embedding(30_000, 48)
            self.user, self.item = mlp(48 + 8, 64, 256), mlp(48 + 4, 64, 256)
            self.temperature = nn.Parameter(torch.tensor(0.07).log())
            self.register_buffer("last", torch.zeros(8192))
            self.register_buffer("gap", torch.full((8192,), 100.0))
            self.register_buffer("now", torch.zeros(()))

        @torch.no_grad()
        def frequency(self, items: torch.Tensor) -> torch.Tensor:
            self.now += 1
            places = (items * 2654435761 % 4294967291) % 8192
            seen = places.unique()
            self.gap[seen] = 0.95 * self.gap[seen] + 0.05 * (self.now - self.last[seen])
            self.last[seen] = self.now
            return 1 / self.gap[places].clamp(min=1)

        def forward(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
            user = self.user(torch.cat([self.users(batch["user"]), batch["context"]], 1))
            item = self.item(torch.cat([self.items(batch["item"]), batch["content"]], 1))
            return F.normalize(user, dim=1), F.normalize(item, dim=1)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        user, item = model(batch)
        scores = user @ item.t() / model.temperature.exp() - model.frequency(batch["item"]).log()
        same = batch["item"][:, None] == batch["item"][None]
        scores = scores.masked_fill(same & ~torch.eye(len(same), dtype=torch.bool), -1e9)
        each = F.cross_entropy(scores, torch.arange(len(scores)), reduction="none")
        return (each * batch["reward"]).sum() / batch["reward"].sum()

    rows = 512
    batch = {
        "user": torch.randint(0, 50_000, (rows,)), "context": torch.randn(rows, 8),
        "item": (30_000 * torch.rand(rows) ** 3).long(), "content": torch.randn(rows, 4), "reward": torch.rand(rows),
    }  # fmt: skip
    return recipe_of(Towers, batch, loss=loss)


class Dice(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.slope = nn.BatchNorm1d(width, affine=False), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = self.norm(x).sigmoid()
        return share * x + (1 - share) * self.slope * x


@clicks
def interest_evolution() -> Recipe:
    """A history of any length that a candidate attends to, an auxiliary loss on its next clicks, a GRU with a gate."""

    class Interests(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = nn.Embedding(20_000, 32, padding_idx=0)
            self.interest, self.cell = nn.GRU(32, 32, batch_first=True), nn.GRUCell(32, 32)
            self.auxiliary = mlp(64, 1, 100, act=nn.Sigmoid)
            self.attention = nn.Sequential(nn.Linear(128, 64), nn.Sigmoid(), nn.Linear(64, 1))
            self.head = nn.Sequential(nn.Linear(96, 128), Dice(128), nn.Linear(128, 64), Dice(64), nn.Linear(64, 1))

        def forward(self, history: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mask, seen, aim = history > 0, self.items(history), self.items(wanted)
            states, _ = self.interest(seen)
            real = self.auxiliary(torch.cat([states[:, :-1], seen[:, 1:]], -1))[mask[:, 1:]]
            drawn = self.items(torch.randint_like(history[:, 1:], 1, 20_000))
            false = self.auxiliary(torch.cat([states[:, :-1], drawn], -1))[mask[:, 1:]]
            side = F.softplus(-real).mean() + F.softplus(false).mean()
            aims = aim[:, None].expand_as(states)
            joined = torch.cat([states, aims, states - aims, states * aims], -1)
            weights = self.attention(joined).squeeze(-1).masked_fill(~mask, -1e9).softmax(1)
            state = torch.zeros_like(aim)
            for number in range(history.shape[1]):
                after = self.cell(states[:, number], state)
                state = state + weights[:, number, None] * (after - state)
            return self.head(torch.cat([state, aim, state * aim], 1)).squeeze(1), side

    def sample(numbers: random.Random) -> Any:
        history = [numbers.randrange(1, 20_000) for _ in range(min(60, 3 + int(numbers.expovariate(1 / 15))))]
        return torch.tensor(history), numbers.randrange(1, 20_000), float(numbers.random() < 0.5)

    def collate(samples: list[Any]) -> Any:
        history, wanted, clicked = zip(*samples, strict=True)
        return pad_sequence(list(history), batch_first=True), torch.tensor(wanted), torch.tensor(clicked)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        scores, side = model(batch[0], batch[1])
        return F.binary_cross_entropy_with_logits(scores, batch[2]) + 0.5 * side

    return Recipe(model=Interests, data=lambda: Samples(3000, sample), collate=collate, loss=loss,
                  optimizer=torch.optim.Adam, micro_batch_size=128, max_steps=100)  # fmt: skip


@clicks
def next_items() -> Recipe:
    """Causal attention over what a user took, with negatives drawn for every place and only real places counted."""

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items, self.places = nn.Embedding(12_001, 64, padding_idx=0), nn.Embedding(50, 64)
            self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(5))
            self.mixers = nn.ModuleList(nn.MultiheadAttention(64, 2, 0.2, batch_first=True) for _ in range(2))
            self.inner = nn.ModuleList(
                nn.Sequential(nn.Conv1d(64, 64, 1), nn.Dropout(0.2), nn.ReLU(), nn.Conv1d(64, 64, 1)) for _ in range(2)
            )

        def forward(self, taken: torch.Tensor) -> torch.Tensor:
            keep = (taken > 0).unsqueeze(-1)
            x = F.dropout(self.items(taken) * 8 + self.places(torch.arange(taken.shape[1])), 0.2, self.training) * keep
            future = torch.triu(torch.ones(taken.shape[1], taken.shape[1], dtype=torch.bool), 1)
            for number, (mix, inner) in enumerate(zip(self.mixers, self.inner, strict=True)):
                query = self.norms[2 * number](x)
                x = query + mix(query, x, x, attn_mask=future, need_weights=False)[0]
                x = self.norms[2 * number + 1](x)
                x = (x + inner(x.transpose(1, 2)).transpose(1, 2)) * keep
            return self.norms[4](x)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        (taken,) = batch
        into, aims = taken[:, :-1], taken[:, 1:]
        drawn = torch.randint(1, 12_001, (*aims.shape, 4))
        states, real = model(into), aims > 0
        right = (states * model.items(aims)).sum(-1)[real]
        wrong = torch.einsum("bld,blnd->bln", states, model.items(drawn))[real]
        wrong = wrong.masked_fill(drawn[real] == aims[real][:, None], -1e9)
        penalty = 1e-6 * sum(each.square().sum() for each in (model.items.weight, model.places.weight))
        return F.softplus(-right).mean() + F.softplus(wrong).mean() + penalty

    taken = torch.randint(1, 12_001, (64, 51))
    taken[torch.arange(51) < torch.randint(0, 45, (64, 1))] = 0
    return recipe_of(Sequence, (taken,), loss=loss)


@clicks
def gradient_surgery() -> Recipe:
    """Experts that three tasks share, each with a gate; gradients of tasks that pull apart are projected."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fields = nn.ModuleList(nn.Embedding(2000, 16) for _ in range(10))
            self.experts = nn.ModuleList(mlp(160, 64, 256, 1) for _ in range(4))
            self.gates = nn.ModuleList(nn.Linear(160, 4) for _ in range(3))
            self.towers = nn.ModuleList(mlp(64, 1, 64, 1) for _ in range(3))
            self.spread = nn.Parameter(torch.zeros(3))

        def forward(self, ids: torch.Tensor) -> list[torch.Tensor]:
            x = torch.cat([field(ids[:, number]) for number, field in enumerate(self.fields)], 1)
            found = torch.stack([expert(x) for expert in self.experts], 1)
            mixed = [(gate(x).softmax(-1).unsqueeze(-1) * found).sum(1) for gate in self.gates]
            return [tower(each).squeeze(1) for tower, each in zip(self.towers, mixed, strict=True)]

    def step(model: Any, optimizer: Any, batch: Any) -> dict[str, torch.Tensor]:
        click, buy, watch = model(batch[0])
        clicked, bought, seconds = batch[1].unbind(1)
        joint = click.sigmoid() * buy.sigmoid()
        losses = [
            F.binary_cross_entropy_with_logits(click, clicked),
            F.binary_cross_entropy(joint.clamp(1e-6, 1 - 1e-6), clicked * bought),
            F.smooth_l1_loss(watch, seconds),
        ]
        losses = [each * torch.exp(-spread) + spread for each, spread in zip(losses, model.spread, strict=True)]
        parameters = list(model.parameters())
        flat = []
        for each in losses:
            found = torch.autograd.grad(each, parameters, retain_graph=True, allow_unused=True)
            pairs = zip(found, parameters, strict=True)
            flat.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]))
        turned = [each.clone() for each in flat]
        for one, other in itertools.permutations(range(3), 2):
            product = turned[one] @ flat[other]
            if product < 0:
                turned[one] -= product / flat[other].square().sum() * flat[other]
        total = torch.stack(turned).sum(0)
        for parameter, part in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)
        optimizer.step()
        optimizer.zero_grad()
        return dict(zip(("click", "buy", "watch"), losses, strict=True))

    told = torch.cat([torch.randint(0, 2, (400, 2)).float(), torch.rand(400, 1)], 1)
    return recipe_of(Shared, (torch.randint(0, 2000, (400, 10)), told), step=step,
                     optimizer=lambda model: torch.optim.Adam(model.parameters()))  # fmt: skip


class Ftrl(torch.optim.Optimizer):
    """Follow the regularised leader: weights are sparse because a sum of gradients must first leave a threshold."""

    def __init__(self, parameters: Any, alpha: float = 0.05, beta: float = 1.0, l1: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": alpha, "beta": beta, "l1": l1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["z"], state["n"] = torch.zeros_like(p), torch.zeros_like(p)
                after = state["n"] + p.grad.square()
                sigma = (after.sqrt() - state["n"].sqrt()) / group["lr"]
                state["z"].add_(p.grad - sigma * p)
                state["n"].copy_(after)
                shrunk = state["z"].sign() * group["l1"] - state["z"]
                p.copy_(
                    torch.where(
                        state["z"].abs() <= group["l1"], 0, shrunk / ((group["beta"] + after.sqrt()) / group["lr"])
                    )
                )


@clicks
def admitted_features() -> Recipe:
    """A factorisation machine over hashed crosses; a rare id has no row of its own until it was seen three times."""

    class Machine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Embedding(100_000, 1)
            self.quotient, self.remainder = nn.Embedding(400, 24), nn.Embedding(250, 24)
            self.own = nn.Embedding(100_000, 24)
            self.deep = mlp(24 * 12, 1, 200, 3)
            self.register_buffer("counts", torch.zeros(100_000, dtype=torch.int32))
            nn.init.zeros_(self.linear.weight)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.counts += torch.bincount(ids.flatten(), minlength=100_000).int()
            rows = self.quotient(ids // 250) * self.remainder(ids % 250)
            known = self.counts[ids] >= 3
            rows = rows.masked_scatter(known.unsqueeze(-1), self.own(ids[known]))
            pairs = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1)
            return self.linear(ids).sum((1, 2)) + pairs + self.deep(rows.flatten(1)).squeeze(1)

    def batch(number: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (100_000 * torch.rand(size, 12) ** 4).long(), torch.randint(0, 2, (size,)).float()

    def optimizers(model: Any) -> dict[str, torch.optim.Optimizer]:
        rest = [p for name, p in model.named_parameters() if not name.startswith("linear")]
        return {"wide": Ftrl(model.linear.parameters()), "deep": torch.optim.AdamW(rest, lr=1e-3, amsgrad=True)}

    def step(model: Any, optimizers: Any, batch: Any) -> torch.Tensor:
        loss = F.binary_cross_entropy_with_logits(model(batch[0]), batch[1])
        loss.backward()
        for each in optimizers.values():
            each.step()
            each.zero_grad()
        return loss

    return Recipe(model=Machine, data=lambda: batch, step=step, optimizer=optimizers, micro_batch_size=300,
                  max_steps=100)  # fmt: skip
