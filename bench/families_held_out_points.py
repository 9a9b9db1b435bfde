"""Clouds of points: neighbours that are searched, voxels that are counted, distances between sets, rigid motions."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
import torch.nn.functional as F
from families import Samples, family, mlp
from torch import nn

from surefoot import Recipe, recipe_of

points = family("points")


def picked(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows of each cloud: `x` is [B, N, C], `places` is [B, ...]."""
    flat = places.flatten(1)
    return x.gather(1, flat.unsqueeze(-1).expand(-1, -1, x.shape[-1])).view(*places.shape, x.shape[-1])


def farthest(where: torch.Tensor, count: int) -> torch.Tensor:
    """Farthest point sampling: each point is the one that is farthest from all before."""
    chosen = torch.zeros(len(where), count, dtype=torch.long)
    distance = torch.full(where.shape[:2], 1e10)
    last = torch.randint(0, where.shape[1], (len(where),))
    rows = torch.arange(len(where))
    for number in range(count):
        chosen[:, number] = last
        away = (where - where[rows, last].unsqueeze(1)).square().sum(-1)
        nearer = away < distance
        distance[nearer] = away[nearer]
        last = distance.max(-1).indices
    return chosen


def in_ball(radius: float, count: int, where: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    distance = torch.cdist(centres, where)
    places = torch.arange(where.shape[1]).repeat(*centres.shape[:2], 1)
    places[distance > radius] = where.shape[1]
    places = places.sort(-1).values[:, :, :count]
    first = places[:, :, :1].expand_as(places)
    places = torch.where(places == where.shape[1], first, places)
    return places.clamp(max=where.shape[1] - 1)


@points
def abstraction_sets() -> Recipe:
    """Balls around far points, networks on each ball, and features carried back to all points for their labels."""

    class Abstraction(nn.Module):
        def __init__(self, count: int, radius: float, near: int, into: int, widths: tuple[int, ...]) -> None:
            super().__init__()
            self.count, self.radius, self.near = count, radius, near
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Conv2d(a, b, 1), nn.BatchNorm2d(b), nn.ReLU())
                for a, b in itertools.pairwise((into + 3, *widths))
            )

        def forward(self, where: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.no_grad():
                centres = picked(where, farthest(where, self.count))
                places = in_ball(self.radius, self.near, where, centres)
            local = picked(where, places) - centres.unsqueeze(2)
            grouped = torch.cat([local, picked(x, places)], -1).permute(0, 3, 2, 1)
            for layer in self.layers:
                grouped = layer(grouped)
            return centres, grouped.max(2).values.transpose(1, 2)

    class Carried(nn.Module):
        def __init__(self, into: int, out: int) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv1d(into, out, 1), nn.BatchNorm1d(out), nn.ReLU())

        def forward(self, where: Any, centres: Any, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
            distance, places = torch.cdist(where, centres).topk(3, -1, largest=False)
            weights = 1 / (distance + 1e-8)
            weights = weights / weights.sum(-1, keepdim=True)
            carried = (picked(coarse, places) * weights.unsqueeze(-1)).sum(2)
            return self.body(torch.cat([fine, carried], -1).transpose(1, 2)).transpose(1, 2)

    class Labels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = Abstraction(128, 0.4, 16, 6, (32, 32, 64))
            self.two = Abstraction(32, 0.8, 16, 64, (64, 64, 128))
            self.back, self.last, self.head = Carried(192, 64), Carried(70, 64), nn.Linear(64, 13)

        def forward(self, where: torch.Tensor, colours: torch.Tensor) -> torch.Tensor:
            x = torch.cat([where, colours], -1)
            first, one = self.one(where, x)
            second, two = self.two(first, one)
            one = self.back(first, second, one, two)
            return self.head(F.dropout(self.last(where, first, x, one), 0.5, self.training))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        weights = 1 / torch.bincount(batch[2].flatten(), minlength=13).clamp(min=1).float().sqrt()
        return F.cross_entropy(model(*batch[:2]).flatten(0, 1), batch[2].flatten(), weights)

    batch = torch.rand(6, 512, 3) * 2 - 1, torch.rand(6, 512, 3), torch.randint(0, 13, (6, 512))
    return recipe_of(Labels, batch, loss=loss)


@points
def neighbours_by_features() -> Recipe:
    """A graph of nearest neighbours, found anew in the features of each layer."""

    def edges(x: torch.Tensor, near: int) -> torch.Tensor:
        inner = x @ x.transpose(1, 2)
        squares = x.square().sum(-1, keepdim=True)
        places = (2 * inner - squares - squares.transpose(1, 2)).topk(near, -1).indices
        around = x.unsqueeze(2).expand(-1, -1, near, -1)
        return torch.cat([picked(x, places) - around, around], -1).permute(0, 3, 1, 2).contiguous()

    class Dynamic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(
                nn.Sequential(nn.Conv2d(2 * a, b, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
                for a, b in ((3, 32), (32, 32), (32, 64))
            )
            self.joined = nn.Sequential(nn.Conv1d(128, 256, 1, bias=False), nn.BatchNorm1d(256), nn.LeakyReLU(0.2))
            self.head = nn.Sequential(nn.Linear(512, 128), nn.BatchNorm1d(128), nn.Dropout(), nn.Linear(128, 40))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = []
            for conv in self.convs:
                x = conv(edges(x, 12)).max(-1).values.transpose(1, 2)
                kept.append(x)
            x = self.joined(torch.cat(kept, -1).transpose(1, 2))
            return self.head(torch.cat([x.amax(-1), x.mean(-1)], 1))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        keep = torch.rand(batch[0].shape[1]) > 0.1
        return F.cross_entropy(model(batch[0][:, keep]), batch[1], label_smoothing=0.2)

    return recipe_of(Dynamic, (torch.randn(8, 400, 3), torch.randint(0, 40, (8,))), loss=loss)


@points
def pillars() -> Recipe:
    """Points of any number fall into columns; the columns that have some make an image, from which boxes are told."""
    side = 48

    class Pillars(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.point = nn.Sequential(nn.Linear(9, 48, bias=False), nn.BatchNorm1d(48), nn.ReLU())
            self.down = nn.Sequential(
                nn.Conv2d(48, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1)
            )
            self.up = nn.ConvTranspose2d(64, 64, 2, 2)
            self.kinds, self.boxes = nn.Conv2d(64, 3, 1), nn.Conv2d(64, 7, 1)
            nn.init.constant_(self.kinds.bias, -4.6)

        def forward(self, clouds: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
            numbers = torch.cat([torch.full((len(each),), number) for number, each in enumerate(clouds)])
            cloud = torch.cat(clouds)
            cells = (cloud[:, :2] * side).long().clamp(0, side - 1)
            flat = (numbers * side + cells[:, 1]) * side + cells[:, 0]
            places, back, counts = flat.unique(return_inverse=True, return_counts=True)
            sums = torch.zeros(len(places), 3).index_add_(0, back, cloud[:, :3])
            middle = sums / counts[:, None]
            about = torch.cat([cloud, cloud[:, :3] - middle[back], cloud[:, :2] - (cells + 0.5) / side], 1)
            x = self.point(about)
            x = torch.full((len(places), 48), -torch.inf).scatter_reduce(0, back[:, None].expand_as(x), x, "amax")
            canvas = torch.zeros(len(clouds) * side * side, 48).index_copy(0, places, x)
            image = canvas.view(len(clouds), side, side, 48).permute(0, 3, 1, 2)
            seen = F.relu(self.up(self.down(image)))
            return self.kinds(seen), self.boxes(seen)

    def sample(numbers: random.Random) -> Any:
        cloud = torch.rand(numbers.randint(300, 4000), 4)
        boxes = torch.rand(numbers.randint(0, 8), 7)
        return cloud, boxes, torch.randint(0, 3, (len(boxes),))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        clouds, boxes, kinds = batch
        scores, offsets = model(clouds)
        aims = torch.zeros_like(scores)
        side_loss = torch.zeros(())
        for number, (each, kind) in enumerate(zip(boxes, kinds, strict=True)):
            if len(each) == 0:
                continue
            x, y = (each[:, :2] * side).long().clamp(0, side - 1).unbind(1)
            aims[number, kind, y, x] = 1
            side_loss = side_loss + F.smooth_l1_loss(offsets[number, :, y, x].t(), each, reduction="sum")
        share = scores.sigmoid()
        right = torch.where(aims > 0, share, 1 - share)
        focal = -(torch.where(aims > 0, 0.25, 0.75) * (1 - right).square() * right.clamp(min=1e-6).log()).sum()
        return (focal + 2 * side_loss) / aims.sum().clamp(min=1)

    def collate(samples: list[Any]) -> Any:
        return tuple(list(each) for each in zip(*samples, strict=True))

    return Recipe(model=Pillars, data=lambda: Samples(500, sample), collate=collate, loss=loss,
                  optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3), micro_batch_size=4, max_grad_norm=10.0,
                  max_steps=100)  # fmt: skip


class GatherScatter(torch.autograd.Function):
    """A sparse convolution: for each offset the pairs of rows that meet, one product, and a sum at their places."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor, rules: list[Any], rows: int) -> torch.Tensor:
        context.save_for_backward(x, weight)
        context.rules = rules
        out = x.new_zeros(rows, weight.shape[-1])
        for each, (into, onto) in zip(weight, rules, strict=True):
            if len(into):
                out.index_add_(0, onto, x[into] @ each)
        return out

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        x, weight = context.saved_tensors
        to_x, to_weight = torch.zeros_like(x), torch.zeros_like(weight)
        for number, (into, onto) in enumerate(context.rules):
            if len(into):
                part = gradient[onto]
                to_x.index_add_(0, into, part @ weight[number].t())
                to_weight[number] = x[into].t() @ part
        return to_x, to_weight, None, None


@points
def sparse_voxels() -> Recipe:
    """Convolutions on the voxels that have points: keys that are sorted and searched, and a U of two levels."""
    offsets = torch.tensor(list(itertools.product((-1, 0, 1), repeat=3)))

    def key(cells: torch.Tensor) -> torch.Tensor:
        return ((cells[:, 0] * 512 + cells[:, 1] + 1) * 512 + cells[:, 2] + 1) * 512 + cells[:, 3] + 1

    def rules_of(cells: torch.Tensor) -> list[Any]:
        keys = key(cells)
        ordered, order = keys.sort()
        rules = []
        for offset in offsets:
            wanted = key(torch.cat([cells[:, :1], cells[:, 1:] + offset], 1))
            at = torch.searchsorted(ordered, wanted).clamp(max=len(ordered) - 1)
            hit = (ordered[at] == wanted).nonzero().squeeze(1)
            rules.append((order[at[hit]], hit))
        return rules

    class Sparse(nn.Module):
        def __init__(self, into: int, out: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(27, into, out) * (2 / (27 * into)) ** 0.5)
            self.norm = nn.BatchNorm1d(out)

        def forward(self, x: torch.Tensor, rules: list[Any]) -> torch.Tensor:
            return F.relu(self.norm(GatherScatter.apply(x, self.weight, rules, len(x))))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = Sparse(3, 32), Sparse(32, 64), Sparse(96, 32)
            self.head = nn.Linear(32, 20)

        def forward(self, where: torch.Tensor, colours: torch.Tensor) -> torch.Tensor:
            cells = where.long()
            cells, back = cells.unique(dim=0, return_inverse=True)
            counts = torch.bincount(back).unsqueeze(1)
            x = torch.zeros(len(cells), 3).index_add_(0, back, colours) / counts
            fine = rules_of(cells)
            x = self.one(x, fine)
            coarse, up = torch.cat([cells[:, :1], cells[:, 1:] // 2], 1).unique(dim=0, return_inverse=True)
            pooled = torch.zeros(len(coarse), 32).index_reduce_(0, up, x, "mean", include_self=False)
            pooled = self.two(pooled, rules_of(coarse))
            x = self.three(torch.cat([x, pooled[up]], 1), fine)
            return self.head(x)[back]

    def batch(number: int, size: int) -> Any:
        counts = torch.randint(600, 2500, (size,)).tolist()
        where = [
            torch.cat([torch.full((n, 1), i), (torch.randn(n, 3) * 6 + 32).clamp(0, 63)], 1)
            for i, n in enumerate(counts)
        ]
        where = torch.cat(where)
        return where, torch.rand(len(where), 3), torch.randint(-1, 20, (len(where),))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0], batch[1]), batch[2], ignore_index=-1)

    return Recipe(model=Net, data=lambda: batch, loss=loss, optimizer=lambda p: torch.optim.SGD(p, 0.1, 0.9),
                  micro_batch_size=3, max_steps=100)  # fmt: skip


@points
def folded_sheets() -> Recipe:
    """Clouds of any number of points, each folded from a sheet, and judged by nearest points and by an auction."""

    class Folding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.point, self.code = mlp(3, 128, 64), nn.Linear(128, 96)
            self.first, self.second = mlp(98, 3, 192), mlp(99, 3, 192)
            steps = torch.linspace(-1, 1, 18)
            self.register_buffer("sheet", torch.cartesian_prod(steps, steps))

        def forward(self, cloud: torch.Tensor) -> torch.Tensor:
            code = self.code(self.point(cloud).amax(0)).expand(len(self.sheet), -1)
            folded = self.first(torch.cat([self.sheet, code], 1))
            return self.second(torch.cat([folded, code], 1))

    @torch.no_grad()
    def auction(costs: torch.Tensor, rounds: int = 40) -> torch.Tensor:
        """Each row bids for the column that it gains most from, until all have one or the rounds are over."""
        gains, owners = -costs, torch.full((costs.shape[1],), -1)
        prices, chosen = torch.zeros(costs.shape[1]), torch.full((len(costs),), -1)
        for _ in range(rounds):
            free = (chosen < 0).nonzero().squeeze(1)
            if len(free) == 0:
                break
            best, at = (gains[free] - prices).topk(2, 1)
            bids = torch.full_like(prices, -1.0)
            offer = best[:, 0] - best[:, 1] + 0.02
            bids.scatter_reduce_(0, at[:, 0], offer, "amax")
            winners = offer >= bids[at[:, 0]]
            for row, column in zip(free[winners].tolist(), at[winners, 0].tolist(), strict=True):
                if owners[column] >= 0:
                    chosen[owners[column]] = -1
                owners[column], chosen[row] = row, column
            prices = prices + bids.clamp(min=0)
        return chosen

    def loss(model: Any, clouds: list[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(())
        for cloud in clouds:
            made = model(cloud)
            distance = torch.cdist(made, cloud)
            total = total + distance.min(1).values.mean() + distance.min(0).values.mean()
            chosen = auction(distance[: min(len(cloud), 128), :])
            rows = (chosen >= 0).nonzero().squeeze(1)
            total = total + 0.1 * (made[rows] - cloud[chosen[rows]]).norm(dim=1).mean()
        return total / len(clouds)

    def sample(numbers: random.Random) -> torch.Tensor:
        return F.normalize(torch.randn(numbers.randint(150, 600), 3), dim=1)

    return Recipe(model=Folding, data=lambda: Samples(300, sample), collate=list, loss=loss,
                  optimizer=lambda p: torch.optim.Adam(p, lr=1e-4, weight_decay=1e-6), micro_batch_size=6,
                  max_steps=100)  # fmt: skip


@points
def registration() -> Recipe:
    """Two clouds of one thing: soft matches by attention, a rotation by singular values, three rounds of it."""

    class Matched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.point, self.mix = mlp(3, 64, 128), nn.MultiheadAttention(64, 4, batch_first=True)
            self.cross, self.heat = nn.MultiheadAttention(64, 4, batch_first=True), mlp(64, 1, 32, 1)

        def motion(self, source: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            a, b = self.point(source), self.point(target)
            a, b = a + self.mix(a, a, a)[0], b + self.mix(b, b, b)[0]
            a, b = a + self.cross(a, b, b)[0], b + self.cross(b, a, a)[0]
            sharp = F.softplus(self.heat((a.mean(1) - b.mean(1)).abs())).unsqueeze(-1) + 0.1
            met = torch.softmax(sharp * (a @ b.transpose(1, 2)) / 8, -1) @ target
            one, other = source - source.mean(1, keepdim=True), met - met.mean(1, keepdim=True)
            u, _, v = torch.linalg.svd(one.transpose(1, 2) @ other)
            sign = torch.det(v.transpose(1, 2) @ u.transpose(1, 2)).detach()
            flip = torch.diag_embed(torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], 1))
            turn = v.transpose(1, 2) @ flip @ u.transpose(1, 2)
            return turn, met.mean(1) - (turn @ source.mean(1).unsqueeze(-1)).squeeze(-1)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        source, target, turn, shift = batch
        total, eye = torch.zeros(()), torch.eye(3)
        for number in range(3):
            found, moved = model.motion(source, target)
            turned = F.mse_loss(found.transpose(1, 2) @ turn, eye.expand_as(turn))
            total = total + 0.9**number * (turned + F.mse_loss(moved, shift))
            source = (source @ found.transpose(1, 2) + moved.unsqueeze(1)).detach()
            turn, shift = (turn @ found.transpose(1, 2)).detach(), (shift - moved).detach()
        return total

    source = torch.randn(8, 200, 3)
    turns = torch.linalg.qr(torch.randn(8, 3, 3)).Q
    shift = torch.rand(8, 3)
    target = source @ turns.transpose(1, 2) + shift.unsqueeze(1) + 0.01 * torch.randn(8, 200, 3)
    return recipe_of(Matched, (source, target, turns, shift), loss=loss, max_grad_norm=1.0)
