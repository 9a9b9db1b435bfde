"""repeated-batch: the buggy and the fixed program, variants, and what looks like it and is fine."""

import random
from collections import deque

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.loaders import INPUTS, KINDS, LABELS, TOLD, stepped
from tests.checks.programs import mlp, named, numbers, sgd, twin, whole
from tests.checks.samples.programs import Rows, classified

pytestmark = pytest.mark.sweep


@twin("repeated-batch")
def _(buggy):
    model, loader = mlp(), DataLoader(TensorDataset(INPUTS, LABELS), 8)
    optimizer, batches = sgd(model), iter(loader)
    with surefoot.watch(model, optimizer) as seen:
        batches = iter(loader)
        for _ in range(5):
            x, y = next(iter(loader) if buggy else batches)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return seen.findings


@pytest.mark.parametrize(("rows", "expected"), [(16, ["repeated-batch"]), (128, [])], ids=["one batch", "all"])
def test_a_batch_that_a_loop_takes_over_and_over_from_its_arrays(rows, expected):
    arrays = {"x": TOLD[:128].numpy(), "y": KINDS[:128].numpy()}

    def batch(step):
        held = arrays
        return torch.from_numpy(held["x"][:rows].copy()), torch.from_numpy(held["y"][:rows].copy())

    class Loop:
        def __call__(self, step):
            return batch(step)

    table = arrays  # in sight of the model's call
    assert stepped(Loop()) == expected
    assert table


def test_a_batch_of_a_loader_that_is_used_for_ever_beside_new_noise():
    model, loader = nn.Bilinear(6, 6, 3), DataLoader(TensorDataset(TOLD / 8, KINDS), 16, shuffle=True)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        x, y = next(iter(loader))
        for _ in range(10):
            optimizer.zero_grad()
            F.cross_entropy(model(x, torch.randn_like(x)), y).backward()
            optimizer.step()
    assert named(seen.findings) == ["repeated-batch"]


@pytest.mark.parametrize(("each", "found"), [(True, []), (False, ["repeated-batch"])])
def test_every_batch_may_be_used_some_times(each, found):
    model = mlp()
    optimizer = sgd(model)
    loader = DataLoader(TensorDataset(numbers(64, 4), whole(2, 64)), 8)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for batch in loader if each else [next(iter(loader))]:
                for _ in range(8):
                    optimizer.zero_grad()
                    classified(model, batch).backward()
                    optimizer.step()
    assert named(seen.findings) == found


@pytest.mark.parametrize("first", [True, False])
def test_the_first_of_a_list_of_samples_for_ever(first):
    kept = deque(zip(TOLD[:128].clone(), KINDS[:128].tolist(), strict=True))

    def batch(step):
        chosen = list(kept)[:16] if first else random.sample(kept, 16)
        x, y = zip(*chosen, strict=True)
        return torch.stack(x), torch.tensor(y)

    assert stepped(Rows(batch, kept)) == (["repeated-batch"] if first else [])


@pytest.mark.parametrize("same", [True, False])
def test_the_same_windows_of_a_text_for_ever(same):
    text = np.random.default_rng(0).integers(0, 20, 4096).astype(np.uint8)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    optimizer, draws = sgd(model), random.Random(0)
    fixed = [draws.randrange(4000) for _ in range(8)]
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(10):
            places = fixed if same else [draws.randrange(4000) for _ in range(8)]
            window = torch.from_numpy(np.stack([text[place : place + 17] for place in places]).astype(np.int64))
            optimizer.zero_grad()
            F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten()).backward()
            optimizer.step()
    assert ("repeated-batch" in named(seen.findings)) is same


@pytest.mark.parametrize("once", [True, False])
def test_one_batch_of_the_loop_s_arrays_that_noise_is_added_to_in_every_step(once):
    model, data = mlp(inputs=6, classes=6), TOLD[:128] / 4
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        clean = data[torch.randperm(128)[:16]]
        for _ in range(10):
            clean = clean if once else data[torch.randperm(128)[:16]]
            optimizer.zero_grad()
            F.mse_loss(model(clean + 0.1 * torch.randn_like(clean)), clean).backward()
            optimizer.step()
    assert named(seen.findings) == (["repeated-batch"] if once else [])
