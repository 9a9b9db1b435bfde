"""Learning without labels: slow teachers, centres, queues, masks that are drawn, codes that are balanced."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from families import family
from torch import nn

from surefoot import Recipe, recipe_of

alone = family("self_supervised", steps=5)


def body(width: int = 32, out: int = 128) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.Conv2d(2 * width, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def projector(into: int, width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(into, width), nn.BatchNorm1d(width), nn.ReLU(True), nn.Linear(width, out))


def viewed(images: torch.Tensor, side: int | None = None) -> torch.Tensor:
    """A crop of each image, turned round, brightened and with noise, as augmentation inside a step does it."""
    least = 0.3 if side else 0.6
    scale = torch.empty(len(images)).uniform_(least, 1.0)
    shift = (1 - scale)[:, None] * (2 * torch.rand(len(images), 2) - 1)
    turned = torch.where(torch.rand(len(images)) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(scale)
    first, second = torch.stack([scale * turned, zero, shift[:, 0]], 1), torch.stack([zero, scale, shift[:, 1]], 1)
    side = side or images.shape[-1]
    grid = F.affine_grid(torch.stack([first, second], 1), [len(images), 3, side, side], align_corners=False)
    out = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    return out * (1 + 0.4 * torch.randn(len(images), 1, 1, 1)) + 0.05 * torch.randn_like(out)


class Patches(nn.Module):
    """A small vision transformer for images of any size."""

    def __init__(self, width: int = 96, depth: int = 3, patch: int = 8, grid: int = 6) -> None:
        super().__init__()
        self.patch, self.grid = nn.Conv2d(3, width, patch, patch), grid
        self.token, self.places = (
            nn.Parameter(torch.zeros(1, 1, width)),
            nn.Parameter(torch.randn(1, width, grid, grid) * 0.02),
        )
        layer = nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patch(images)
        places = self.places
        if x.shape[-1] != self.grid:
            places = F.interpolate(places, x.shape[2:], mode="bicubic")
        x = torch.cat([self.token.expand(len(x), -1, -1), (x + places).flatten(2).transpose(1, 2)], 1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)[:, 0]


@alone
def centred_teacher() -> Recipe:
    """Large and small crops; a slow teacher whose answers are centred and sharpened; a last layer that waits."""

    class Head(nn.Module):
        def __init__(self, into: int = 96, out: int = 1024) -> None:
            super().__init__()
            self.mlp = nn.Sequential(
                nn.Linear(into, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64)
            )
            self.last = nn.utils.parametrizations.weight_norm(nn.Linear(64, out, bias=False))
            self.last.parametrizations.weight.original0.data.fill_(1)
            self.last.parametrizations.weight.original0.requires_grad = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(F.normalize(self.mlp(x), dim=-1))

    class Crops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = Patches(), Head()

        def forward(self, crops: list[torch.Tensor]) -> torch.Tensor:
            sizes = torch.tensor([each.shape[-1] for each in crops])
            ends = torch.unique_consecutive(sizes, return_counts=True)[1].cumsum(0).tolist()
            start, out = 0, []
            for end in ends:
                out.append(self.body(torch.cat(crops[start:end])))
                start = end
            return self.head(torch.cat(out))

    def networks() -> dict[str, nn.Module]:
        student = Crops()
        teacher = Crops()
        teacher.load_state_dict(student.state_dict())
        teacher.requires_grad_(False)
        teacher.register_buffer("centre", torch.zeros(1, 1024))
        teacher.register_buffer("steps", torch.zeros((), dtype=torch.long))
        return {"student": student, "teacher": teacher}

    def step(networks: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        student, teacher, images = networks["student"], networks["teacher"], batch[0]
        number = int(teacher.steps)
        for place, group in enumerate(optimizer.param_groups):
            group["lr"] = 5e-4 * min(1.0, (number + 1) / 10)
            if place == 0:
                group["weight_decay"] = 0.4 - 0.36 * 0.5 * (1 + math.cos(math.pi * number / 100))
        crops = [viewed(images), viewed(images), *(viewed(images, 24) for _ in range(4))]
        with torch.no_grad():
            told = teacher(crops[:2])
            aims = ((told - teacher.centre) / 0.04).softmax(-1).chunk(2)
        answers = (student(crops) / 0.1).chunk(6)
        total, terms = torch.zeros(()), 0
        for i, aim in enumerate(aims):
            for j, answer in enumerate(answers):
                if i != j:
                    total, terms = total - (aim * answer.log_softmax(-1)).sum(-1).mean(), terms + 1
        loss = total / terms
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in student.named_parameters():
            if parameter.grad is not None:
                norm = parameter.grad.norm()
                if norm > 3:
                    parameter.grad.mul_(3 / (norm + 1e-6))
                if number < 2 and "last" in name:
                    parameter.grad = None
        optimizer.step()
        with torch.no_grad():
            teacher.centre.mul_(0.9).add_(told.mean(0, keepdim=True), alpha=0.1)
            share = 1 - (1 - 0.996) * (math.cos(math.pi * number / 100) + 1) / 2
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.data.mul_(share).add_((1 - share) * fast.detach().data)
        teacher.steps += 1
        return loss

    def optimizer(networks: Any) -> torch.optim.Optimizer:
        every = [p for p in networks["student"].parameters() if p.requires_grad]
        small = {"params": [p for p in every if p.dim() <= 1], "weight_decay": 0.0}
        return torch.optim.AdamW([{"params": [p for p in every if p.dim() > 1]}, small])

    return recipe_of(networks, (torch.randn(8, 3, 48, 48),), step=step, optimizer=optimizer)


class Lars(torch.optim.Optimizer):
    """SGD whose rate for each layer is the ratio of the norms of its weights and its gradient."""

    def __init__(self, parameters: Any, lr: float = 0.2, momentum: float = 0.9, decay: float = 1e-6) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                pull = p.grad
                if p.ndim > 1:
                    pull = pull.add(p, alpha=group["decay"])
                    weight, slope = p.norm(), pull.norm()
                    one = torch.ones_like(weight)
                    pull = pull * torch.where(weight > 0, torch.where(slope > 0, 0.001 * weight / slope, one), one)
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(group["momentum"]).add_(pull)
                p.add_(state["mu"], alpha=-group["lr"])


@alone
def own_latent() -> Recipe:
    """Two views predict each other's slow projections, by a deep copy that is made in the first forward pass."""

    class Latent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online = nn.Sequential(body(), projector(128, 512, 128))
            self.predictor = projector(128, 512, 128)
            self.slow: Any = None

        def slow_network(self) -> nn.Module:
            if self.slow is None:
                self.slow = copy.deepcopy(self.online).requires_grad_(False)
            return self.slow

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            one, two = viewed(images), viewed(images)
            projected = self.online(torch.cat([one, two]))
            told = F.normalize(self.predictor(projected), dim=-1)
            with torch.no_grad():
                aims = F.normalize(self.slow_network()(torch.cat([two, one])), dim=-1)
            return (2 - 2 * (told * aims).sum(-1)).mean()

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        loss = model(batch[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(model.slow_network().parameters(), model.online.parameters(), strict=True):
                slow.data = 0.99 * slow.data + 0.01 * fast.data
        return loss

    return recipe_of(Latent, (torch.randn(32, 3, 32, 32),), step=step, optimizer=lambda m: Lars(m.parameters()))


@alone
def queued_keys() -> Recipe:
    """Keys of a slow encoder, shuffled for its norms, and a queue of those that came before."""

    class Queued(nn.Module):
        def __init__(self, size: int = 4096) -> None:
            super().__init__()
            self.query = nn.Sequential(body(), projector(128, 128, 64))
            self.key = copy.deepcopy(self.query).requires_grad_(False)
            self.register_buffer("queue", F.normalize(torch.randn(64, size), dim=0))
            self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def keys(self, images: torch.Tensor) -> torch.Tensor:
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                slow.data = slow.data * 0.999 + fast.data * 0.001
            shuffle = torch.randperm(len(images))
            parts = [self.key(each) for each in images[shuffle].chunk(4)]
            return F.normalize(torch.cat(parts)[shuffle.argsort()], dim=1)

        @torch.no_grad()
        def enqueue(self, keys: torch.Tensor) -> None:
            at = int(self.pointer)
            self.queue[:, at : at + len(keys)] = keys.t()
            self.pointer[0] = (at + len(keys)) % self.queue.shape[1]

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            query = F.normalize(self.query(viewed(images)), dim=1)
            keys = self.keys(viewed(images))
            near = torch.einsum("nc,nc->n", [query, keys]).unsqueeze(-1)
            far = torch.einsum("nc,ck->nk", [query, self.queue.clone().detach()])
            scores = torch.cat([near, far], 1) / 0.2
            self.enqueue(keys)
            return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))

    return recipe_of(Queued, (torch.randn(64, 3, 32, 32),), loss=lambda model, batch: model(batch[0]),
                     optimizer=lambda p: torch.optim.SGD(p, 0.03, 0.9, weight_decay=1e-4))  # fmt: skip


@alone
def masked_patches() -> Recipe:
    """Three of four patches are hidden, of each image others; a small decoder draws them again."""

    class Hidden(nn.Module):
        def __init__(self, width: int = 128, small: int = 64) -> None:
            super().__init__()

            def layers(width: int, count: int) -> nn.ModuleList:
                layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
                return nn.ModuleList(copy.deepcopy(layer) for _ in range(count))

            self.into, self.encoder, self.decoder = nn.Linear(192, width), layers(width, 3), layers(small, 2)
            self.norm, self.between, self.out = nn.LayerNorm(width), nn.Linear(width, small), nn.Linear(small, 192)
            self.token, self.mask = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 1, small))
            self.register_buffer("places", torch.randn(1, 65, width) * 0.1)
            self.register_buffer("small_places", torch.randn(1, 65, small) * 0.1)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            patches = F.unfold(images, 8, stride=8).transpose(1, 2)
            samples, count, _ = patches.shape
            x = self.into(patches) + self.places[:, 1:]
            order = torch.rand(samples, count).argsort(1)
            back = order.argsort(1)
            kept = order[:, : count // 4]
            x = x.gather(1, kept.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
            x = torch.cat([(self.token + self.places[:, :1]).expand(samples, -1, -1), x], 1)
            for layer in self.encoder:
                x = layer(x)
            x = self.between(self.norm(x))
            hidden = self.mask.expand(samples, count - kept.shape[1], -1)
            y = torch.cat([x[:, 1:], hidden], 1).gather(1, back.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
            y = torch.cat([x[:, :1], y], 1) + self.small_places
            for layer in self.decoder:
                y = layer(y)
            aims = (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6) ** 0.5
            missing = (back >= count // 4).float()
            return ((self.out(y[:, 1:]) - aims).square().mean(-1) * missing).sum() / missing.sum()

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1.5e-4, betas=(0.9, 0.95), weight_decay=0.05)

    return recipe_of(
        Hidden, (torch.randn(16, 3, 64, 64),), loss=lambda model, batch: model(batch[0]), optimizer=optimizer
    )


@alone
def swapped_codes() -> Recipe:
    """Codes balanced over prototypes, by rounds of normalising; a queue helps once it is full; prototypes wait."""

    @torch.no_grad()
    def balanced(scores: torch.Tensor, rounds: int = 3) -> torch.Tensor:
        q = torch.exp(scores / 0.05).t()
        q /= q.sum()
        for _ in range(rounds):
            q /= q.sum(1, keepdim=True)
            q /= len(q)
            q /= q.sum(0, keepdim=True)
            q /= q.shape[1]
        return (q * q.shape[1]).t()

    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.project = body(), projector(128, 256, 64)
            self.prototypes = nn.Linear(64, 300, bias=False)
            self.register_buffer("queue", torch.zeros(2, 128, 64))
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

        def forward(self, views: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.cat([self.body(torch.cat(views[:2])), self.body(torch.cat(views[2:]))])
            x = F.normalize(self.project(x), dim=1)
            return x, self.prototypes(x)

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        images, size = batch[0], len(batch[0])
        with torch.no_grad():
            model.prototypes.weight.copy_(F.normalize(model.prototypes.weight, dim=1))
        codes, scores = model([viewed(images), viewed(images), *(viewed(images, 20) for _ in range(3))])
        codes, loss = codes.detach(), torch.zeros(())
        for number in range(2):
            with torch.no_grad():
                out = scores[number * size : (number + 1) * size].detach()
                if model.steps >= 2:
                    out = torch.cat([model.queue[number] @ model.prototypes.weight.t(), out])
                model.queue[number, size:] = model.queue[number, :-size].clone()
                model.queue[number, :size] = codes[number * size : (number + 1) * size]
                aims = balanced(out)[-size:]
            others = [each for each in range(5) if each != number]
            for other in others:
                told = (scores[other * size : (other + 1) * size] / 0.1).log_softmax(1)
                loss = loss - (aims * told).sum(1).mean() / len(others) / 2
        optimizer.zero_grad()
        loss.backward()
        if model.steps < 1:
            model.prototypes.weight.grad = None
        optimizer.step()
        model.steps += 1
        return loss

    return recipe_of(Swapped, (torch.randn(32, 3, 32, 32),), step=step,
                     optimizer=lambda m: torch.optim.SGD(m.parameters(), 0.1, 0.9, weight_decay=1e-6))  # fmt: skip


@alone
def cached_gradients() -> Recipe:
    """A large contrastive batch in pieces: first without a graph, then the loss alone, then piece by piece with it."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.images, self.seen = body(32, 192), nn.Linear(192, 64)
            self.embed, self.words, self.read = (
                nn.Embedding(2000, 96),
                nn.GRU(96, 96, batch_first=True),
                nn.Linear(96, 64),
            )
            self.scale = nn.Parameter(torch.tensor(1 / 0.07).log())

        def image(self, images: torch.Tensor) -> torch.Tensor:
            return F.normalize(self.seen(F.dropout(self.images(images), 0.1, self.training)), dim=1)

        def text(self, tokens: torch.Tensor) -> torch.Tensor:
            return F.normalize(self.read(self.words(self.embed(tokens))[1][0]), dim=1)

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        images, tokens = (each.split(32) for each in batch)
        states, kept = [], []
        with torch.no_grad():
            for a, b in zip(images, tokens, strict=True):
                states.append(torch.get_rng_state())
                kept.append((model.image(a), model.text(b)))
        seen, read = (torch.cat(each).requires_grad_() for each in zip(*kept, strict=True))
        scores = model.scale.exp() * seen @ read.t()
        aims = torch.arange(len(scores))
        loss = (F.cross_entropy(scores, aims) + F.cross_entropy(scores.t(), aims)) / 2
        optimizer.zero_grad()
        loss.backward()
        pulls = zip(seen.grad.split(32), read.grad.split(32), strict=True)
        for a, b, state, (pull_a, pull_b) in zip(images, tokens, states, pulls, strict=True):
            now = torch.get_rng_state()
            torch.set_rng_state(state)
            one, two = model.image(a), model.text(b)
            torch.set_rng_state(now)
            ((one * pull_a).sum() + (two * pull_b).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            model.scale.clamp_(0, math.log(100))
        return loss

    batch = torch.randn(192, 3, 32, 32), torch.randint(0, 2000, (192, 16))
    return recipe_of(Pair, batch, step=step, optimizer=lambda m: torch.optim.AdamW(m.parameters(), 5e-4, (0.9, 0.98)))
