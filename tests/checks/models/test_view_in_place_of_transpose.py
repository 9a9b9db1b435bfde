"""view-in-place-of-transpose: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import surefoot
from tests.checks.programs import Module, numbers, plain, twin

pytestmark = pytest.mark.sweep


@twin("view-in-place-of-transpose")
def _(buggy):
    def forward(self, x):
        maps = self.maps(x)
        tokens = maps.view(len(x), 9, 6) if buggy else maps.flatten(2).transpose(1, 2)
        return self.end(self.mix(tokens).relu().mean(1))

    layers = {"maps": lambda: nn.Conv2d(3, 6, 3), "mix": lambda: nn.Linear(6, 6), "end": lambda: nn.Linear(6, 2)}
    return plain(Module(forward, **layers), x=numbers(8, 3, 5, 5))


class Pictures(Dataset):
    def __init__(self, change):
        drawn = torch.Generator().manual_seed(0)
        self.labels = torch.arange(64) % 2
        self.pictures = torch.randint(0, 100, (64, 12, 10, 3), generator=drawn, dtype=torch.uint8)
        self.pictures[self.labels == 1, :, :, 0] += 100
        self.change = change

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.change(self.pictures[index]).float() / 255, self.labels[index]


def names(change, workers: int = 0) -> set[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(1, 3, 12, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(Pictures(change), 16, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    with surefoot.watch() as seen:
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        findings = seen.findings
    return {each.check for each in findings.findings}


def viewed(picture):
    height, width, colours = picture.shape
    return picture.view(colours, height, width)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_view_in_a_data_set_is_named(workers):
    assert "view-in-place-of-transpose" in names(viewed, workers)


def flattened(picture):
    return picture.permute(2, 0, 1).reshape(3, -1).reshape(3, 12, 10)


def permuted(picture):
    return picture.permute(2, 0, 1).contiguous()


@pytest.mark.parametrize("change", [permuted, flattened])
def test_a_permute_is_not(change):
    assert "view-in-place-of-transpose" not in names(change)
