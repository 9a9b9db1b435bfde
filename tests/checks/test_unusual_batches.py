"""Batches in objects, waves, windows and picks: sound programs whose inputs or targets lie in other ways than most."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset

import surefoot
from surefoot.trees import map_tensors
from tests.checks.test_pairs import OTHERS, Maps, trained
from tests.checks.test_variants import named
from tests.checks.twins import X, Y, mlp, sgd, whole

pytestmark = pytest.mark.sweep


@dataclass(frozen=True, slots=True)
class Held:
    x: torch.Tensor
    scale: float = 1.0


class OfObjects(nn.Module):
    def __init__(self, *, blind: bool = False):
        super().__init__()
        self.net, self.blind = mlp(nn.BatchNorm1d(8)), blind

    def forward(self, batch):
        return self.net(torch.ones_like(batch.x) if self.blind else batch.x)


def given(kind, model):
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(kind(x=X + step)), Y).backward()
            optimizer.step()
    return named(seen.findings)


def test_inputs_in_objects_are_replaced_before_a_model_is_said_to_ignore_them():
    assert given(Held, OfObjects()) == given(SimpleNamespace, OfObjects()) == []
    assert given(Held, OfObjects(blind=True)) == ["input-ignored"]


def test_tensors_in_data_classes_are_mapped():
    mapped = map_tensors(lambda each: each + 1, [Held(torch.zeros(2), 3.0)])
    assert mapped[0].x.tolist() == [1, 1]
    assert mapped[0].scale == 3.0


class Waves(Dataset):
    """Pictures of waves that begin anywhere, one direction after the other; their labels, or others."""

    def __init__(self, *, own: bool):
        drawn = np.random.default_rng(2)
        down, across = np.mgrid[0:8, 0:8] / 8
        begins = drawn.uniform(0, 6.28, 160)
        labels = np.repeat([0, 1], 80)
        shown = labels if own else drawn.permutation(labels)
        waves = [np.sin(12 * (across if kind else down) + begin) for kind, begin in zip(shown, begins, strict=True)]
        pictures = np.stack(waves) + drawn.normal(0, 1.6, (160, 8, 8))
        self.pictures = torch.from_numpy(pictures[:, None]).float()
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], int(self.labels[index])


@pytest.mark.parametrize("own", [True, False])
def test_labels_in_an_order_may_be_told_by_waves(own):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    found = trained(DataLoader(Waves(own=own), 16, shuffle=True), model=model)
    assert named(found) == ([] if own else OTHERS)


class Shaded(Maps):
    """Maps that a flip leaves as they are come with pictures that are flipped."""

    def __init__(self, count, flips):
        super().__init__(count, flips)
        self.pairs = [(picture, (picture[..., :1] > 0).float().expand(1, 6, 6)) for picture, _ in self.pairs]


def test_a_map_that_a_flip_leaves_as_it_is_need_not_be_flipped():
    model = nn.Conv2d(1, 1, 3, padding=1)
    loader = DataLoader(Shaded(32, "pictures"), 8, shuffle=True)
    assert named(trained(loader, model=model, loss=F.binary_cross_entropy_with_logits)) == []


@pytest.mark.parametrize("opponent", [True, False])
def test_what_an_opponent_is_trained_for_may_be_subtracted(opponent):
    hider, seeker, wards = mlp(classes=6), nn.Linear(4, 3), whole(3, 8)
    ours, theirs = sgd(hider), sgd(seeker)
    with surefoot.watch() as seen:
        for step in range(12):
            if opponent:
                code = hider(X + step)[:, 2:].detach()
                theirs.zero_grad()
                F.cross_entropy(seeker(code), wards).backward()
                theirs.step()
            seeker.requires_grad_(False)
            out = hider(X + step)
            ours.zero_grad()
            (F.cross_entropy(out[:, :2], Y) - 0.1 * F.cross_entropy(seeker(out[:, 2:]), wards)).backward()
            ours.step()
            seeker.requires_grad_(True)
    assert ("negated-loss" in named(seen.findings)) is not opponent


class AlwaysDropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x):
        return self.net(F.dropout(x, 0.3, training=True))


@pytest.mark.parametrize("times", [1, 8])
def test_one_batch_evaluated_many_times_is_a_measurement_whatever_the_mode(times):
    model = AlwaysDropping()
    with surefoot.watch() as seen:
        optimizer = sgd(model)
        for step in range(6):
            optimizer.zero_grad()
            F.cross_entropy(model(X + step), Y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            torch.stack([model(X - 9).softmax(1) for _ in range(times)]).mean(0)
    assert named(seen.findings) == ([] if times > 1 else ["dropout-in-evaluation"])


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.gru, self.head = nn.Embedding(8, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 8)

    def forward(self, tokens, lengths):
        packed, _ = self.gru(pack_padded_sequence(self.embed(tokens), lengths, batch_first=True))
        return self.head(pad_packed_sequence(packed, batch_first=True)[0])


@pytest.mark.parametrize("counted", [False, True])
def test_the_token_behind_the_last_of_a_row_may_be_asked_for(counted):
    lengths, text = torch.tensor([7, 7, 6, 6, 4, 4]), whole(7, 6, 8) + 1
    beyond = torch.arange(7) >= lengths[:, None]
    tokens = text[:, :-1].masked_fill(beyond, 0)
    wanted = text[:, 1:].masked_fill(beyond, 0 if counted else -100)
    with surefoot.watch() as seen:
        model = Packed()
        optimizer = sgd(model)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, lengths).flatten(0, 1), wanted.flatten()).backward()
            optimizer.step()
    assert ("padding-in-loss" in named(seen.findings)) is counted
