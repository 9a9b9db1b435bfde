"""Samples and targets that part, batches that never change and streams: in loops of many styles, beside sound ones."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

import surefoot
from tests.checks.test_data_variants import KINDS, MANY, TOLD, stepped
from tests.checks.test_variants import named
from tests.checks.twins import Module, mlp, numbers, sgd
from tests.checks.twins.data import trained

pytestmark = pytest.mark.sweep

OTHERS = ["labels-of-other-samples"]


@pytest.mark.parametrize("apart", [True, False])
def test_rows_of_numpy_arrays_are_told_by_their_values(apart):
    class Table:
        x, y = TOLD[:128].numpy(), KINDS[:128].numpy()

    table, drawn = Table(), np.random.default_rng(0)
    table.x, table.y = Table.x, Table.y

    def batch(step):
        rows, other = drawn.permutation(128)[:16], drawn.permutation(128)[:16]
        return torch.from_numpy(table.x[rows]), torch.from_numpy(table.y[other if apart else rows])

    in_sight = table  # of the loop
    assert stepped(batch) == (OTHERS if apart else [])
    assert in_sight


@pytest.mark.parametrize("whose", ["flipped", "of the batch before", "own", "own, both flipped"])
def test_targets_are_compared_with_what_the_loader_handed_out(whose):
    before = []

    def loss(prediction, y):
        before.append(y)
        return F.cross_entropy(prediction, {"flipped": y.flip(0), "of the batch before": before[-2:][0]}.get(whose, y))

    loader = DataLoader(TensorDataset(TOLD, KINDS), 16, shuffle=True)
    model = mlp(inputs=6, classes=3)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for x, y in loader:
            x, y = (x.flip(0), y.flip(0)) if "both" in whose else (x, y)
            optimizer.zero_grad()
            loss(model(x), y.clone()).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if "own" in whose else OTHERS)


@pytest.mark.parametrize("redrawn", [True, False])
def test_a_sample_that_comes_again_has_its_own_target_again(redrawn):
    def made(step):
        rows = torch.arange(16) + 16 * (step % 8)
        x, y = (TOLD[rows] + 1e-3).clone(), KINDS[rows]
        return x, y[torch.argsort(torch.rand(16))].add(0) if redrawn else y

    assert stepped(made, updates=32) == (OTHERS if redrawn else [])


@pytest.mark.parametrize("ordered", [True, False])
def test_labels_in_an_order_that_inputs_do_not_have(ordered):
    order = KINDS[:128].argsort(stable=True)
    inputs, labels = TOLD[:128] if ordered else TOLD[order], KINDS[order]

    def batch(step):
        held = inputs, labels
        rows = torch.randperm(128)[:16]
        return held[0][rows], held[1][rows]

    class Loop:
        held = inputs, labels

        def __call__(self, step):
            return batch(step)

    loop = Loop()
    loop.held = Loop.held
    assert stepped(loop) == (OTHERS if ordered else [])


@pytest.mark.parametrize("fresh", [True, False])
def test_a_target_of_noise_must_be_in_the_input(fresh):
    model = mlp(inputs=6, classes=6)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            clean = TOLD[torch.randperm(128)[:16]] / 4
            noise = torch.randn_like(clean)
            guess = model(clean + 0.5 * noise)
            optimizer.zero_grad()
            F.mse_loss(guess, torch.randn_like(clean) if fresh else noise).backward()
            optimizer.step()
    assert named(seen.findings) == (OTHERS if fresh else [])


@pytest.mark.parametrize("apart", [True, False])
def test_inputs_that_a_diagonal_says_belong_together(apart):
    model = Module(
        lambda self, a, b: self.one(a) @ self.two(b).T, one=lambda: nn.Linear(6, 8), two=lambda: nn.Linear(6, 8)
    )
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        left, right = TOLD / 8, MANY / 8
        for _ in range(8):
            rows, other = torch.randperm(128)[:16], torch.randperm(128)[:16]
            scores = model(left[rows].clone(), right[other if apart else rows].clone())
            optimizer.zero_grad()
            F.cross_entropy(scores, torch.arange(16)).backward()
            optimizer.step()
    assert named(seen.findings) == (OTHERS if apart else [])


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


class Stream(IterableDataset):
    """Samples with noise; each worker has its share or all, in the order of their kinds or as they come."""

    def __init__(self, *, shared=True, ordered=False):
        self.shared, self.rows = shared, KINDS.argsort(stable=True) if ordered else torch.arange(len(KINDS))

    def __iter__(self):
        worker = get_worker_info()
        mine = self.rows[worker.id :: worker.num_workers] if worker and self.shared else self.rows
        return ((TOLD[row] + 0.1 * random.random(), KINDS[row]) for row in mine)


@pytest.mark.parametrize(
    ("stream", "start", "expected"),
    [
        (Stream(), None, []),
        (Stream(shared=False), None, ["unsharded-stream"]),
        (Stream(), random.seed, ["same-randomness-every-epoch"]),
        (Stream(ordered=True), None, ["sorted-training-data"]),
    ],
)
def test_streams_with_noise(stream, start, expected):
    loader = DataLoader(stream, 16, num_workers=2, worker_init_fn=start)
    assert named(trained(loader, model=mlp(inputs=6, classes=3), passes=1)) == expected


class Shuffled(Stream):
    """In an order of its own in every worker, without noise."""

    def __iter__(self):
        rows = self.rows[get_worker_info().id :: 2] if get_worker_info() and self.shared else self.rows
        return ((TOLD[row], KINDS[row]) for row in rows[torch.randperm(len(rows))])


@pytest.mark.parametrize("shared", [True, False])
def test_a_stream_that_every_worker_shuffles_for_itself(shared):
    loader = DataLoader(Shuffled(shared=shared), 16, num_workers=2)
    assert named(trained(loader, model=mlp(inputs=6, classes=3), passes=1)) == ([] if shared else ["unsharded-stream"])


class Maps(Dataset):
    """Pictures with maps, kept in pairs; flipped anew with every reading, both or one of them."""

    def __init__(self, count, flips):
        pictures = numbers(count, 1, 6, 6, seed=count)
        self.pairs, self.flips = [(each, (each > 0).float()) for each in pictures], flips

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        picture, mask = self.pairs[index]
        if self.flips and torch.rand(()) < 0.5:
            picture, mask = picture.flip(-1), mask.flip(-1) if self.flips == "both" else mask
        return picture, mask


@pytest.mark.parametrize(
    ("train", "valid", "expected"),
    [
        ("both", "", []),
        ("pictures", "", OTHERS),
        ("both", "both", ["augmented-evaluation-data"]),
    ],
)
def test_pictures_that_are_flipped_with_their_maps(train, valid, expected):
    loader = DataLoader(Maps(32, train), 8, shuffle=True)
    model, evaluation = nn.Conv2d(1, 1, 3, padding=1), DataLoader(Maps(16, valid), 8)
    found = trained(loader, evaluation=evaluation, model=model, loss=F.binary_cross_entropy_with_logits)
    assert named(found) == expected
