"""Grades of pupils from a table of eight columns: every column a token, looked at with attention, as a recipe."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

COLUMNS, GRADES = 8, 4
CENTRE = torch.tensor([12.0, 7.5, 40.0, 3.0, 600.0, 15.0, 2.0, 50.0])
SPREAD = torch.tensor([4.0, 1.5, 20.0, 1.0, 150.0, 2.0, 1.0, 30.0])


class Grades(Dataset):
    """Hours of study, hours of sleep and so on, in their own units; the grade comes from a few of them."""

    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        table = CENTRE + SPREAD * torch.randn(count, COLUMNS, generator=g)
        self.columns = (table - CENTRE) / SPREAD
        work, sleep, away = self.columns[:, 0], self.columns[:, 1], self.columns[:, 2]
        points = work + 0.8 * sleep - 0.8 * away * (sleep < 0) + 0.2 * torch.randn(count, generator=g)
        self.grade = torch.bucketize(points, torch.tensor([-1.0, 0.0, 1.0]))

    def __len__(self) -> int:
        return len(self.grade)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"columns": self.columns[index], "grade": self.grade[index]}


class Grader(nn.Module):
    def __init__(self, width: int, depth: int, activation: str = "ReLU") -> None:
        super().__init__()
        self.scale = nn.Parameter(0.3 * torch.randn(COLUMNS, width))
        self.shift = nn.Parameter(torch.zeros(COLUMNS, width))
        self.query = nn.Linear(width, 1)
        act = getattr(nn, activation)
        self.mix = nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(width, width), act())])
        self.body = nn.Sequential(nn.Linear(COLUMNS + width, width), act())
        self.dropped = 0.1
        self.grade = nn.Linear(width, GRADES)

    def forward(self, columns: Tensor) -> Tensor:
        tokens = self.mix(columns.unsqueeze(-1) * self.scale + self.shift)
        weight = F.softmax(self.query(tokens), dim=1)
        looked = (weight * tokens).sum(dim=1)
        x = self.body(torch.cat([columns, looked], dim=1))
        return self.grade(F.dropout(x, self.dropped, self.training))


def grade_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["columns"]), batch["grade"])


def grades(width: int = 24, depth: int = 2, lr: float = 4e-3) -> Recipe:
    return Recipe(
        model=lambda: Grader(width, depth),
        data=lambda: Grades(480, seed=21),
        evaluation=lambda: Grades(90, seed=22),
        loss=grade_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01),
        schedule=lambda step, steps: min(1.0, (step + 1) / 5),
        micro_batch_size=24,
        max_steps=60,
        max_grad_norm=1.0,
        evaluate_every=20,
    )
