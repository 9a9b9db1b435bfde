"""States of small steps, for tests of what a checkpoint holds."""

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn


def same(one, other) -> bool:
    """Equal in type and in every bit, NaN included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    return one == other


class Net(nn.Module):
    """Tied weights, a frozen one, buffers that are saved by torch and one that is not, and extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.conv = nn.Conv2d(2, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.mix = nn.Linear(16, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.randn(8), requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64), persistent=False)
        self.calls = 0

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.seen += tokens.numel()
        self.calls += 1
        x = self.embedding(tokens).view(-1, 2, 2, 2)
        x = self.mix(self.norm(self.conv(x)).flatten(1)) * self.scale + self.frozen
        return self.head(x) * (1 + 1e-3 * self.seen)

    def get_extra_state(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def step_with(optimizer: Callable[..., torch.optim.Optimizer], *, dtype: torch.dtype = torch.float32) -> Any:
    """Like a Step, but small, and with two groups of parameters in the optimizer."""
    model = Net().to(dtype)
    parameters = [each for each in model.parameters() if each.requires_grad]
    matrices = [each for each in parameters if each.dim() >= 2]
    groups = [{"params": matrices}, {"params": [each for each in parameters if each.dim() < 2]}]
    made = optimizer(groups)
    scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.5 ** (step / 7))
    return SimpleNamespace(
        model=model, optimizer=made, scheduler=scheduler, scaler=torch.amp.GradScaler("cpu", enabled=False), number=0
    )


def take(step: Any, count: int) -> None:
    for _ in range(count):
        step.number += 1
        generator = torch.Generator().manual_seed(step.number)
        tokens = torch.randint(0, 11, (6,), generator=generator)

        def closure(tokens: torch.Tensor = tokens) -> torch.Tensor:
            step.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(step.model(tokens).float(), tokens.roll(1))
            loss.backward()
            return loss

        step.optimizer.step(closure)
        step.scheduler.step()


def matrices(groups: list[dict[str, Any]]) -> list[torch.Tensor]:
    return [each for each in groups[0]["params"] if each.dim() == 2]


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1),
    "sgd-momentum": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
    "adam-amsgrad": lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
    "adamw-loop": lambda groups: torch.optim.AdamW(groups, lr=0.01, foreach=False),
    "adamw-foreach": lambda groups: torch.optim.AdamW(groups, lr=0.01, foreach=True),
    "adamw-fused": lambda groups: torch.optim.AdamW(groups, lr=0.01, fused=True),
    "adamw-tensor-lr": lambda groups: torch.optim.AdamW(groups, lr=torch.tensor(0.01), foreach=False),
    "adafactor": lambda groups: torch.optim.Adafactor(groups, lr=0.01),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.01),
    "adadelta": lambda groups: torch.optim.Adadelta(groups),
    "adamax": lambda groups: torch.optim.Adamax(groups),
    "asgd": lambda groups: torch.optim.ASGD(groups),
    "nadam": lambda groups: torch.optim.NAdam(groups),
    "radam": lambda groups: torch.optim.RAdam(groups),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, momentum=0.9, centered=True),
    "rprop": lambda groups: torch.optim.Rprop(groups),
    "lbfgs": lambda groups: torch.optim.LBFGS(matrices(groups), max_iter=3),
    "muon": lambda groups: torch.optim.Muon(matrices(groups), lr=0.01),
}
