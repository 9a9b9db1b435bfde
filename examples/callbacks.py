"""Callbacks: a note after every tenth step, and predictions of the model after every evaluation."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def line(count: int, seed: int) -> TensorDataset:
    """Points near a line."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, generator=draws)
    return TensorDataset(x, 3 * x + 0.1 * torch.randn(count, 1, generator=draws))


def note(run, row):
    if row.step % 10 == 0:
        with open(run.folder / "notes.txt", "a") as file:
            print(row.step, row.loss, file=file)


def predict(run, row):
    with torch.no_grad():
        made = run.model()(torch.linspace(0, 1, 5).unsqueeze(1))
    (run.folder / f"predictions-{row.step}.txt").write_text(str(made))


def fitted() -> Recipe:
    return Recipe(
        model=lambda: nn.Linear(1, 1),
        data=lambda: line(256, seed=1),
        loss=lambda model, batch: F.mse_loss(model(batch[0]), batch[1]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=16,
        max_steps=40,
        evaluation=lambda: line(64, seed=2),
        evaluate_every=20,
        on_step=note,
        on_evaluation=predict,
    )
