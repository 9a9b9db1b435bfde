"""Programs that tests of several rules about samples share."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import surefoot
from tests.checks.loaders import COUNT, INPUTS, KINDS, LABELS, TOLD
from tests.checks.programs import mlp, named, numbers, sgd


class Noisy(Dataset):
    """Samples with noise: from a generator of its own, or from numpy's global one; or none."""

    def __init__(self, noise):
        self.noise, self.rng = noise, np.random.default_rng(0)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        drawn = {"own": self.rng.random, "global": np.random.random, "none": lambda: 0.0}[self.noise]()
        return INPUTS[index] + float(drawn), LABELS[index]


OTHERS, SORTED, AUGMENTED = ["labels-of-other-samples"], ["sorted-training-data"], ["augmented-evaluation-data"]


def told(loader, step, *, model=None, passes=2, evaluate=None, **held):
    """What is found of a loop that takes a loss from each batch."""
    model = model or mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(passes):
            for batch in loader:
                optimizer.zero_grad()
                step(model, batch).backward()
                optimizer.step()
            if evaluate is not None:
                with torch.no_grad():
                    evaluate(model)
    return named(seen.findings)


def classified(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


class Samples(Dataset):
    """Rows of numbers, and what is made of each when it is read."""

    def __init__(self, make, count=64):
        self.x, self.make = numbers(count, 4), make
        self.y = (self.x[:, 0] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.make(self, index)


class Rows:
    """Batches from arrays that the loop can see."""

    def __init__(self, batch, table):
        self.batch, self.table = batch, table

    def __call__(self, step):
        return self.batch(step)


class PairStream(IterableDataset):
    """Samples with noise; each worker has its share or all, in the order of their kinds or as they come."""

    def __init__(self, *, shared=True, ordered=False):
        self.shared, self.rows = shared, KINDS.argsort(stable=True) if ordered else torch.arange(len(KINDS))

    def __iter__(self):
        worker = get_worker_info()
        mine = self.rows[worker.id :: worker.num_workers] if worker and self.shared else self.rows
        return ((TOLD[row] + 0.1 * random.random(), KINDS[row]) for row in mine)


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
