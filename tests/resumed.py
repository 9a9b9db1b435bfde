"""Runs in parts: stopped by an exception, and what they ended with."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import surefoot
from surefoot import read_run
from surefoot.checkpoint.outline import leaves
from surefoot.checkpoint.store import Checkpoints
from surefoot.records.log import read_rows


class NoisyReviews(Dataset):
    """A user's own data set: samples with noise from numpy's global generator."""

    def __len__(self) -> int:
        return 90

    def __getitem__(self, number: int):
        label = number % 2
        return torch.as_tensor(np.random.normal(label, 1.0, 4), dtype=torch.float32), label


class StreamOfReviews(IterableDataset):
    """The same as a stream without a length."""

    def __iter__(self):
        for number in range(90):
            yield torch.tensor([random.gauss(number % 2, 1.0) for _ in range(4)]), number % 2


class Stop(Exception):
    pass


def train_to(recipe, path: Path, stop: int) -> None:
    """Trains until an exception after this step."""

    def tell(run, row):
        if row.step == stop:
            raise Stop

    with pytest.raises(Stop):
        surefoot.train(recipe, path=str(path), tell=tell)


def train_in_parts(recipe, path: Path, *stops: int):
    """Trains with an exception after each of these steps, and to the end."""
    for stop in stops:
        train_to(recipe, path, stop)
    return surefoot.train(recipe, path=str(path))


def told(run) -> list[tuple]:
    return [(row.step, row.loss.hex(), row.grad_norm.hex(), row.lr, row.samples_digest) for row in run.rows()]


def final_state(run) -> dict[str, str]:
    """Every tensor and number of the last checkpoint, as text that shows every bit."""
    state = Checkpoints(run.checkpoints).newest().load()
    flat, _ = torch.utils._pytree.tree_flatten_with_path(state)
    return {
        str(path): leaf.contiguous().view(torch.uint8).numpy().tobytes().hex() if torch.is_tensor(leaf) and leaf.dim()
        else repr(leaf.item() if torch.is_tensor(leaf) else leaf)
        for path, leaf in flat
    }  # fmt: skip


def assert_same_bits(recipe, tmp_path: Path, *stops: int) -> None:
    alone = surefoot.train(recipe, path=str(tmp_path / "alone"))
    parts = train_in_parts(recipe, tmp_path / "parts", *stops)
    assert told(parts) == told(alone)
    assert final_state(parts) == final_state(alone)
    assert parts.weights.read_bytes() == alone.weights.read_bytes()
    again = list(read_rows(parts.log))
    assert len(again) > len(parts.rows())  # steps were taken again, and agreed
    assert (parts.steps, parts.tokens) == (alone.steps, alone.tokens)


def state(path):
    """The last checkpoint, all but the generators, which no step reads."""
    loaded = Checkpoints(read_run(path).checkpoints).newest().load()
    return {place: leaf for place, leaf in leaves(loaded) if place[0] != "generators"}
