"""Twins of the checks on data sets and loaders."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
    random_split,
)

import surefoot
from tests.checks.twins import mlp, numbers, plain, sgd, twin, whole

COUNT = 48
INPUTS, LABELS = numbers(COUNT, 4), whole(2, COUNT)


def trained(loader, *, passes=2, model=None, evaluation=None, loss=F.cross_entropy, epoch=lambda _: None):
    model = model or mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(passes):
            epoch(number)
            for x, y in loader:
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
            if evaluation is not None:
                model.eval()
                with torch.no_grad():
                    for x, _ in evaluation:
                        model(x)
                model.train()
        return seen.findings


class Noisy(Dataset):
    """Samples with noise: from a generator of its own, or from numpy's global one; or none."""

    def __init__(self, noise):
        self.noise, self.rng = noise, np.random.default_rng(0)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        drawn = {"own": self.rng.random, "global": np.random.random, "none": lambda: 0.0}[self.noise]()
        return INPUTS[index] + float(drawn), LABELS[index]


@twin("shared-worker-randomness")
def _(buggy):
    return trained(DataLoader(Noisy("own" if buggy else "global"), 8, shuffle=True, num_workers=2), passes=1)


def constant_seed(worker):
    np.random.seed(42 + worker)


@twin("same-randomness-every-epoch")
def _(buggy):
    init = constant_seed if buggy else None
    return trained(DataLoader(Noisy("global"), 8, shuffle=True, num_workers=2, worker_init_fn=init), passes=1)


@twin("same-order-every-epoch")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    return trained(DataLoader(data, 4, sampler=sampler), epoch=lambda n: None if buggy else sampler.set_epoch(n))


@twin("sorted-training-data")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS.sort().values)
    return trained(DataLoader(data, 8, shuffle=not buggy))


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


class Stream(IterableDataset):
    def __init__(self, whole_stream):
        self.whole_stream = whole_stream

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if self.whole_stream or worker is None else (worker.id, worker.num_workers)
        for index in range(first, COUNT, step):
            yield INPUTS[index], LABELS[index]


@twin("unsharded-stream")
def _(buggy):
    return trained(DataLoader(Stream(buggy), 8, num_workers=2), passes=1)


class Changing(Dataset):
    def __init__(self, in_place):
        self.in_place, self.inputs = in_place, INPUTS.numpy().copy()

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        x = torch.from_numpy(self.inputs[index])
        if self.in_place:
            x += 0.1
        return x + 0.1, LABELS[index]


@twin("changing-samples")
def _(buggy):
    return trained(DataLoader(Changing(buggy), 8, shuffle=True))


@twin("unscaled-inputs")
def _(buggy):
    images = whole(256, 8, 3, 8, 8).float()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    images = images if buggy else images / 255
    return plain(model, x=images, y=whole(2, 8), optimizer=sgd(model, lr=1e-5))


@twin("augmented-evaluation-data")
def _(buggy):
    data = Noisy("global")
    train, valid = random_split(data, [32, 16], generator=torch.Generator().manual_seed(0))
    if not buggy:
        valid = Subset(Noisy("none"), valid.indices)
    return trained(DataLoader(train, 8, shuffle=True), evaluation=DataLoader(valid, 8))


@twin("evaluation-samples-in-training")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    valid = Subset(data, range(28 if buggy else 32, COUNT))
    return trained(DataLoader(Subset(data, range(32)), 8, shuffle=True), evaluation=DataLoader(valid, 8))


@twin("shuffled-evaluation")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    valid = DataLoader(Subset(data, range(32, COUNT)), 8, shuffle=buggy)
    return trained(DataLoader(Subset(data, range(32)), 8, shuffle=True), evaluation=valid)


def sorted_apart(samples):
    inputs = [x for x, _ in sorted(samples, key=lambda sample: float(sample[0].sum()))]
    return torch.stack(inputs), torch.stack([y for _, y in samples])


@twin("labels-of-other-samples")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    return trained(DataLoader(data, 8, shuffle=True, collate_fn=sorted_apart if buggy else None))


def measured(measure):
    """A loop that evaluates 20 samples in batches of 8, 8 and 4."""
    model, data = mlp(), TensorDataset(INPUTS, LABELS)
    optimizer, valid = sgd(model), DataLoader(Subset(data, range(28, COUNT)), 8)
    with surefoot.watch(model, optimizer) as seen:
        for x, y in DataLoader(Subset(data, range(28)), 4, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            measure(model.eval(), valid)
    return seen.findings


@twin("loss-of-the-last-batch")
def _(buggy):
    def last(model, valid):
        for x, y in valid:
            loss = F.cross_entropy(model(x), y).item()
        return loss

    def whole_sum(model, valid):
        loss = 0.0
        for x, y in valid:
            loss += F.cross_entropy(model(x), y, reduction="sum").item()
        return loss / len(valid.dataset)

    return measured(last if buggy else whole_sum)


@twin("unweighted-batch-means")
def _(buggy):
    def alike(model, valid):
        losses = [F.cross_entropy(model(x), y).item() for x, y in valid]
        return sum(losses) / len(losses)

    def weighted(model, valid):
        losses = [F.cross_entropy(model(x), y).item() * len(x) for x, y in valid]
        return sum(losses) / len(valid.dataset)

    return measured(alike if buggy else weighted)
