"""A run that stops and goes on reads its data anew: the same samples, though each is augmented in another way."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import surefoot

pytestmark = pytest.mark.sweep


class Noisy(Dataset):
    def __init__(self, seed: int):
        drawn = torch.Generator().manual_seed(seed)
        self.rows = torch.randn(96, 6, generator=drawn)
        self.targets = self.rows[:, :1] - self.rows[:, 1:2]

    def __len__(self):
        return 96

    def __getitem__(self, index):
        return self.rows[index] + 0.1 * torch.randn(6), self.targets[index]


def job(file, seed: int, *, restores: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    start = 0
    if file.exists():
        state = torch.load(file)
        model.load_state_dict(state["model"])
        if restores:
            optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        start = state["epoch"] + 1
    for epoch in range(start, start + 2):
        for x, y in DataLoader(Noisy(seed), 16, shuffle=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save({**states, "epoch": epoch}, file)


@pytest.mark.parametrize(("seed", "restores", "named"), [(0, False, True), (0, True, False), (1, False, False)])
def test_moments_that_are_not_put_back_are_named_where_the_data_are_the_same(tmp_path, seed, restores, named):
    torch.manual_seed(0)
    with surefoot.watch() as seen:
        job(tmp_path / "run.pt", 0, restores=True)
        job(tmp_path / "run.pt", seed, restores=restores)
    found = {each.check for each in seen.findings.findings}
    assert ("unrestored-optimizer" in found) == named
