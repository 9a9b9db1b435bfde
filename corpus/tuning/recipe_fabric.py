"""Faults of woven fabric from strips read by two lamps: a CNN along the strip, pooled by attention, as a recipe."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

LENGTH, LAMPS, KINDS = 320, 2, 4
LEVEL, SWING = 130.0, 40.0


class Strips(Dataset):
    """Readings of a lamp before and a lamp behind the cloth: sound, a hole, a stain or a slack thread."""

    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        kinds = torch.randint(KINDS, (count,), generator=g)
        self.length = torch.randint(200, LENGTH + 1, (count,), generator=g)
        self.strip = torch.zeros(count, LAMPS, LENGTH)
        at = torch.arange(LENGTH)
        for i, (kind, length) in enumerate(zip(kinds.tolist(), self.length.tolist(), strict=True)):
            weave = 20 * torch.sin(0.8 * at + 6 * torch.rand(1, generator=g))
            strip = LEVEL + weave.expand(LAMPS, -1) + 8 * torch.randn(LAMPS, LENGTH, generator=g)
            middle = int(torch.randint(30, length - 30, (1,), generator=g))
            bump = torch.exp(-(((at - middle) / 8.0) ** 2))
            if kind == 1:
                strip = strip + torch.tensor([[-70.0], [90.0]]) * bump
            elif kind == 2:
                strip = strip + torch.tensor([[-70.0], [-60.0]]) * bump
            elif kind == 3:
                strip = strip + 60 * bump * torch.sin(1.6 * at)
            self.strip[i] = strip * (at < length)
        self.fault = kinds

    def __len__(self) -> int:
        return len(self.fault)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        strip = (self.strip[index] - LEVEL) / SWING
        return {"strip": strip, "length": self.length[index], "fault": self.fault[index]}


class Squash(torch.autograd.Function):
    """x / (1 + |x|), with a backward that keeps one tensor."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x / (1 + x.abs())

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad / (1 + x.abs()) ** 2


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(x)
        h = F.relu(self.conv1(h))
        return F.max_pool1d(x + self.conv2(h), 4)


class FaultNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.width, self.shrink = width, 4**depth
        self.stem = nn.Conv1d(LAMPS, width, 7, padding=3)
        at = torch.arange(LENGTH, dtype=torch.float32)
        waves = torch.exp(torch.arange(width // 2) * (-math.log(500.0) / (width // 2)))
        angles = waves[:, None] * at
        self.register_buffer("places", 0.1 * torch.cat([angles.sin(), angles.cos()]))
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.score = nn.Linear(width, 1)
        self.head = nn.Linear(width, KINDS)

    def forward(self, strip: Tensor, length: Tensor) -> Tensor:
        valid = torch.arange(LENGTH, device=strip.device) < length[:, None]
        strip = strip.masked_fill(~valid[:, None], 0.0)
        h = self.stem(strip) + self.places
        for block in self.blocks:
            h = block(h)
        h = h.transpose(1, 2)
        score = self.score(h).squeeze(-1)
        score = score.masked_fill(~valid[:, :: self.shrink], torch.finfo(score.dtype).min)
        weight = F.softmax(score, dim=1)
        pooled = (weight[..., None] * h).sum(dim=1)
        return self.head(Squash.apply(pooled))


def fault_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["strip"], batch["length"])
    return F.cross_entropy(logits, batch["fault"])


def fabric(width: int = 16, depth: int = 2, lr: float = 4e-3) -> Recipe:
    return Recipe(
        model=lambda: FaultNet(width, depth),
        data=lambda: Strips(512, seed=41),
        evaluation=lambda: Strips(96, seed=42),
        loss=fault_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01),
        schedule=lambda step, steps: min((step + 1) / 4, 1 - step / steps),
        micro_batch_size=16,
        max_steps=80,
        max_grad_norm=1.0,
        evaluate_every=20,
    )
