"""How long a machine will last: a GRU over ragged logs as a recipe, padded by its own collate."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import Dataset

from surefoot import Recipe

Sample = tuple[Tensor, Tensor]


class Logs(Dataset):
    """Rows of four readings a day; the target is a mean of the first, weighted by the second."""

    def __init__(self, machines: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(6, 15, (machines,), generator=generator).tolist()
        self.logs = [torch.randn(length, 4, generator=generator) for length in lengths]
        self.life = [(log[:, 0] * log[:, 1].sigmoid()).sum() / 2 + log[-1, 2] for log in self.logs]

    def __len__(self) -> int:
        return len(self.logs)

    def __getitem__(self, index: int) -> Sample:
        return self.logs[index], self.life[index]


def join(samples: list[Sample]) -> dict[str, Tensor]:
    logs, life = zip(*samples, strict=True)
    days = torch.tensor([len(log) for log in logs])
    return {"logs": pad_sequence(list(logs), batch_first=True), "days": days, "life": torch.stack(list(life))}


class Lifetime(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.into = nn.Linear(4, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.drop = nn.Dropout(0.05)
        self.out = nn.Linear(hidden, 1)

    def forward(self, logs: Tensor, days: Tensor) -> Tensor:
        packed = pack_padded_sequence(torch.tanh(self.into(logs)), days, batch_first=True, enforce_sorted=False)
        _, final = self.gru(packed)
        return self.out(self.drop(final[-1])).squeeze(-1)


def squared_error(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    life = batch["life"]
    guess = model(batch["logs"], batch["days"])
    return (guess - life).square().sum(), len(life)


def lifetime(hidden: int = 24, lr: float = 5e-3) -> Recipe:
    return Recipe(
        model=lambda: Lifetime(hidden),
        data=lambda: Logs(320, seed=3),
        evaluation=lambda: Logs(48, seed=4),
        loss=squared_error,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        collate=join,
        micro_batch_size=16,
        max_grad_norm=5.0,
        max_steps=60,
        evaluate_every=30,
    )
