"""Wards that patients go to from visits of unlike number: a GRU over padded measurements, attention, as a recipe."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from surefoot import Recipe

WARDS, MEASURED = 4, 6


class Patients(Dataset):
    """Two of the measurements rise or fall over the visits; which of them does what says the ward."""

    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.visits: list[Tensor] = []
        self.wards: list[int] = []
        for _ in range(count):
            ward = int(torch.randint(WARDS, (), generator=g))
            visits = int(torch.randint(3, 9, (), generator=g))
            rows = 0.5 * torch.randn(visits, MEASURED, generator=g)
            slope = torch.linspace(-1.5, 1.5, visits)
            rows[:, 0] += slope if ward % 2 else -slope
            rows[:, 1] += slope if ward // 2 else -slope
            self.visits.append(rows)
            self.wards.append(ward)

    def __len__(self) -> int:
        return len(self.wards)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.visits[index], self.wards[index]


def collate(rows: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    visits = pad_sequence([v for v, _ in rows], batch_first=True)
    lengths = torch.tensor([len(v) for v, _ in rows])
    return {
        "visits": visits,
        "lengths": lengths,
        "ward": torch.tensor([w for _, w in rows]),
    }


class WardNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(MEASURED, width, batch_first=True)
        self.gain = nn.Parameter(torch.ones(width))
        self.ask = nn.Linear(width, 1)
        self.hidden = nn.Linear(width, width)
        self.ward = nn.Linear(width, WARDS)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("age", torch.linspace(-1.0, 0.0, 16))

    def forward(self, visits: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.gru(visits)
        count = visits.shape[1]
        real = torch.arange(count)[None, :] < lengths[:, None]
        scores = self.ask(torch.tanh(states * self.gain)).squeeze(-1) + self.age[-count:]
        weights = scores.masked_fill(~real, float("-inf")).softmax(dim=1)
        summary = (weights[:, :, None] * states).sum(dim=1)
        return self.ward(self.drop(torch.relu(self.hidden(summary))))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    scores = model(batch["visits"], batch["lengths"])
    return nn.functional.cross_entropy(scores, batch["ward"])


def wards(width: int = 24, lr: float = 6e-3) -> Recipe:
    return Recipe(
        model=lambda: WardNet(width),
        data=lambda: Patients(480, seed=3),
        evaluation=lambda: Patients(80, seed=4),
        collate=collate,
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=16,
        max_steps=60,
        evaluate_every=20,
    )
