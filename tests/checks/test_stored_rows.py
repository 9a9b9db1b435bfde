"""Samples that training changes as it reads them are known by what the data set keeps of them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

import surefoot

pytestmark = pytest.mark.sweep

ROWS, HELD = 160, 48


class Rows(Dataset):
    def __init__(self, features, labels, noise: float = 0.0):
        self.features, self.labels, self.noise = features, labels, noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        x = torch.as_tensor(self.features[index])
        return x + self.noise * torch.randn(x.shape) if self.noise else x, self.labels[index]


def data(array=torch.as_tensor):
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(ROWS, 8)).astype("float32")
    return array(x), torch.as_tensor((x[:, 0] > x[:, 1]).astype("int64"))


def names(training: Dataset, evaluation: Dataset) -> set[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train_loader, test_loader = DataLoader(training, 16, shuffle=True), DataLoader(evaluation, 16)
    with surefoot.watch() as seen:
        for _ in range(2):
            model.train()
            for x, y in train_loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                right = sum(int((model(x).argmax(1) == y).sum()) for x, y in test_loader)
            assert right
    return {each.check for each in seen.findings.findings}


@pytest.mark.parametrize("array", [torch.as_tensor, np.asarray, list])
def test_two_draws_of_one_table_share_rows_though_noise_is_added(array):
    x, y = data(array)
    first, second = torch.randperm(ROWS).tolist(), torch.randperm(ROWS).tolist()

    def rows(order, **more):
        return Rows(array([x[n] for n in order]) if array is list else x[order], y[order], **more)

    found = names(rows(first[HELD:], noise=0.1), rows(second[:HELD]))
    assert "evaluation-samples-in-training" in found


@pytest.mark.parametrize("array", [torch.as_tensor, np.asarray])
def test_two_parts_of_one_table_share_none(array):
    x, y = data(array)
    order = torch.randperm(ROWS).tolist()
    held, rest = order[:HELD], order[HELD:]
    assert "evaluation-samples-in-training" not in names(Rows(x[rest], y[rest], noise=0.1), Rows(x[held], y[held]))


def test_nor_do_two_parts_of_data_sets_that_keep_all_of_it():
    x, y = data()
    noisy, plain = Rows(x, y, noise=0.1), Rows(x, y)
    order = torch.randperm(ROWS).tolist()
    held, rest = order[:HELD], order[HELD:]
    assert "evaluation-samples-in-training" not in names(Subset(noisy, rest), Subset(plain, held))
    assert "evaluation-samples-in-training" in names(
        Subset(noisy, rest), Subset(plain, order[HELD - 24 : 2 * HELD - 24])
    )


def test_rows_of_classes_alone_tell_no_sample():
    x, y = data()
    kept = torch.nn.functional.one_hot(torch.arange(ROWS) % 4, 4).float()
    one, other = Rows(x[HELD:], y[HELD:], noise=0.1), Rows(x[:HELD], y[:HELD])
    one.groups, other.groups = kept[HELD:], kept[:HELD]
    assert "evaluation-samples-in-training" not in names(one, other)
