"""Pictures whose colours a data set takes for rows are named, whoever reads them; a permute is right."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import surefoot
from surefoot.checks.loop.crossed_dimensions import takes_colours_for_rows

pytestmark = pytest.mark.sweep


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


def viewed(picture):
    height, width, colours = picture.shape
    return picture.view(colours, height, width)


def permuted(picture):
    return picture.permute(2, 0, 1).contiguous()


def flattened(picture):
    return picture.permute(2, 0, 1).reshape(3, -1).reshape(3, 12, 10)


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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_view_in_a_data_set_is_named(workers):
    assert "view-in-place-of-transpose" in names(viewed, workers)


@pytest.mark.parametrize("change", [permuted, flattened])
def test_a_permute_is_not(change):
    assert "view-in-place-of-transpose" not in names(change)


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        ((32, 24, 3), (3, 32, 24), True),
        ((3, 32, 24), (32, 24, 3), True),
        ((16, 32, 24, 3), (16, 3, 32, 24), True),
        ((3072,), (3, 32, 32), False),  # as a file has it
        ((32, 24, 3), (32, 72), False),
        ((32, 24, 1), (1, 32, 24), False),  # one colour lies as it should
        ((5, 4, 3), (3, 5, 4), False),  # no picture
        ((32, 24, 3), (24, 32, 3), False),
        ((16, 32, 24, 3), (48, 32, 24), False),
    ],
)
def test_what_is_taken_for_a_picture(before, after, wrong):
    assert takes_colours_for_rows(before, after) == wrong
