"""Orders, draws and repeats that belong to a task, beside those that are faults."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

import surefoot
from tests.checks.test_variants import named
from tests.checks.twins import mlp, numbers, sgd, whole

pytestmark = pytest.mark.sweep

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


@pytest.mark.parametrize(("size", "found"), [(64, []), (8, SORTED)])
def test_all_samples_in_one_batch_need_no_shuffling(size, found):
    y = torch.tensor([0, 1]).repeat_interleave(32)
    x = numbers(64, 4) + y[:, None]
    assert told(DataLoader(TensorDataset(x, y), size), classified, passes=4) == found


@pytest.mark.parametrize(("place", "found"), [(1, []), (2, SORTED)])
def test_only_what_a_loss_asks_for_is_a_label(place, found):
    x, y, lengths = numbers(64, 4), whole(2, 64), torch.tensor([0, 1]).repeat_interleave(32)
    loader = DataLoader(TensorDataset(x, y, lengths), 8)
    seen = told(loader, lambda model, batch: F.cross_entropy(model(batch[0]), batch[place]))
    assert [each for each in seen if each in SORTED] == found


class Conditioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.at, self.net = nn.Embedding(8, 4), mlp(classes=4)

    def forward(self, x, at):
        return self.net(x + self.at(at))


def test_what_a_model_is_given_may_be_drawn_anew():
    drawn = random.Random(0)
    data = Samples(lambda of, index: (of.x[index], drawn.randrange(8)))

    def denoised(model, batch):
        noise = torch.randn_like(batch[0])
        return F.mse_loss(model(batch[0] + noise, batch[1]), noise)

    assert told(DataLoader(data, 8, shuffle=True), denoised, model=Conditioned()) == []


@pytest.mark.parametrize(("share", "found"), [(0.1, []), (1.0, OTHERS)])
def test_labels_may_be_noisy_now_and_then(share, found):
    drawn = random.Random(0)

    def noisy(of, index):
        other = drawn.randrange(64) if drawn.random() < share else index
        return of.x[index], int(of.y[other])

    assert told(DataLoader(Samples(noisy), 8, shuffle=True), classified) == found


@pytest.mark.parametrize(
    ("joined", "found"), [(lambda x, y: (x, y, x.roll(1, 0)), []), (lambda x, y: (x, y.roll(1)), OTHERS)]
)
def test_batches_may_hold_other_samples_to_compare_with(joined, found):
    data = Samples(lambda of, index: (of.x[index], of.y[index]))

    def collate(samples):
        return joined(*(torch.stack(column) for column in zip(*samples, strict=True)))

    assert told(DataLoader(data, 8, shuffle=True, collate_fn=collate), classified) == found


class Matching(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(inputs=8, classes=1)

    def forward(self, one, other):
        return self.net(torch.cat([one, other], 1)).squeeze(1)


def test_other_samples_are_no_match():
    def matched(model, batch):
        x, y = batch
        other = y[torch.randperm(len(y))]
        yes, no = torch.ones(len(x)), torch.zeros(len(x))
        compare = F.binary_cross_entropy_with_logits
        return compare(model(x, y), yes) + compare(model(x, other), no)

    data = TensorDataset(numbers(64, 4), numbers(64, 4, seed=1))
    assert told(DataLoader(data, 8, shuffle=True), matched, model=Matching()) == []


@pytest.mark.parametrize(("mixes", "found"), [(True, []), (False, OTHERS)])
def test_a_rectangle_of_another_sample_brings_its_label(mixes, found):
    x, y = numbers(64, 1, 6, 6), whole(2, 64)

    def pasted(model, batch):
        (pictures, labels), order = batch, torch.randperm(len(batch[0]))
        if not mixes:
            return F.cross_entropy(model(pictures), labels[order])
        pictures = pictures.clone()
        pictures[:, :, 1:4, 1:4] = pictures[order, :, 1:4, 1:4]
        out = model(pictures)
        return 0.75 * F.cross_entropy(out, labels) + 0.25 * F.cross_entropy(out, labels[order])

    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    assert told(DataLoader(TensorDataset(x, y), 8, shuffle=True), pasted, model=model) == found


@pytest.mark.parametrize("related", [True, False])
def test_groups_may_be_numbered_anew(related):
    x, groups = numbers(64, 4), whole(4, 64)
    model = mlp(classes=4)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for turn in range(4):
            labels = (groups + turn) % 4 if related else groups[torch.randperm(64)]
            for begin in range(0, 64, 16):
                optimizer.zero_grad()
                F.cross_entropy(model(x[begin : begin + 16]), labels[begin : begin + 16]).backward()
                optimizer.step()
    assert ("labels-of-other-samples" in named(seen.findings)) is not related


def noted(of, index):
    if not of.done[index]:
        of.kept[index], of.done[index] = of.x[index].tanh(), True
    return of.kept[index], of.y[index]


def piled_up(of, index):
    of.kept[index] += 0.1 * torch.randn(4)
    return of.kept[index].clone(), of.y[index]


@pytest.mark.parametrize(("make", "found"), [(noted, []), (piled_up, ["changing-samples"])])
def test_a_data_set_may_keep_what_it_has_made(make, found):
    data = Samples(make)
    data.kept, data.done = torch.zeros(64, 4), np.zeros(64, bool)
    assert told(DataLoader(data, 8, shuffle=True), classified) == found


def evaluated(make, loss, *, classes):
    training, validation = random_split(Samples(make), [48, 16], torch.Generator().manual_seed(0))
    held = DataLoader(validation, 8)

    def evaluate(model):
        for batch in held:
            loss(model, batch)

    return told(DataLoader(training, 8, shuffle=True), loss, model=mlp(classes=classes), evaluate=evaluate)


def noise(of, index):
    return of.x[index] + torch.randn(4)


def test_noise_beside_what_is_clean_is_the_task_in_evaluation_too():
    def restored(model, batch):
        return F.mse_loss(model(batch[0]), batch[1])

    assert evaluated(lambda of, index: (noise(of, index), of.x[index]), restored, classes=4) == []
    assert evaluated(lambda of, index: (noise(of, index), of.y[index]), classified, classes=2) == AUGMENTED


def test_two_views_of_each_sample_are_the_task():
    def contrasted(model, batch):
        one, other = (F.normalize(model(each), dim=1) for each in batch[:2])
        return F.cross_entropy(one @ other.t() / 0.2, torch.arange(len(one)))

    assert evaluated(lambda of, index: (noise(of, index), noise(of, index), of.y[index]), contrasted, classes=3) == []


@pytest.mark.parametrize("on_purpose", [True, False])
def test_a_part_of_the_training_set_may_be_measured(on_purpose):
    data = TensorDataset(numbers(64, 4), whole(2, 64))
    training, held = Subset(data, range(48)), DataLoader(Subset(data, range(48, 64)), 8)
    names = {"train_part" if on_purpose else "validation": DataLoader(Subset(training, range(16)), 8)}

    def evaluate(model):
        for loader in (*names.values(), held):
            for x, _ in loader:
                model(x)

    found = told(DataLoader(training, 8, shuffle=True), classified, evaluate=evaluate, names=names)
    assert ("evaluation-samples-in-training" in found) is not on_purpose


@pytest.mark.parametrize("leaked", [False, True])
def test_texts_of_a_few_words_repeat_in_training_as_they_do_between_it_and_the_test(leaked):
    drawn = random.Random(0)

    def text():
        words = [drawn.randrange(1, 12) for _ in range(drawn.choice((1, 6, 6, 6)))]
        return torch.tensor([0, *words, *[0] * (6 - len(words))])

    texts = torch.stack([text() for _ in range(160)])
    model = nn.Sequential(nn.Embedding(12, 4), nn.Flatten(), nn.Linear(28, 2))
    held = TensorDataset(torch.cat([texts[:8], texts[128:]]) if leaked else texts[128:])

    def step(model, batch):
        return F.cross_entropy(model(batch[0]), (batch[0].sum(1) % 2))

    def evaluate(model):
        for (x,) in DataLoader(held, 8):
            model(x)

    loader = DataLoader(TensorDataset(texts[:128]), 8, shuffle=True)
    assert ("evaluation-samples-in-training" in told(loader, step, model=model, evaluate=evaluate)) is leaked


@pytest.mark.parametrize("before_the_split", [True, False])
def test_rare_samples_may_be_repeated_when_they_are_split(before_the_split):
    x, order = numbers(120, 4), torch.randperm(120, generator=torch.Generator().manual_seed(0))
    rare = torch.cat([torch.arange(120), torch.arange(100, 120).repeat(4)])

    def repeated(part):
        return part[torch.cat([torch.arange(len(part)), torch.arange(len(part) - 10, len(part)).repeat(3)])]

    if before_the_split:
        both = x[rare][torch.randperm(len(rare), generator=torch.Generator().manual_seed(1))]
        train, test = both[:150], both[150:]
    else:
        train, test = repeated(x[order][:90]), repeated(x[order][90:])
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for rows in torch.randperm(len(train)).split(16):
                optimizer.zero_grad()
                F.cross_entropy(model(train[rows]), (train[rows, 0] > 0).long()).backward()
                optimizer.step()
            with torch.no_grad():
                for part in test.split(16):
                    model(part)
    assert named(seen.findings) == (["evaluation-samples-in-training"] if before_the_split else [])


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


class Scored(nn.Module):
    """Scores of candidates, by one set of weights or by one for each place."""

    def __init__(self, *, alike):
        super().__init__()
        self.score = mlp(classes=1) if alike else mlp(inputs=12, classes=3)
        self.alike = alike

    def forward(self, x):
        return self.score(x).squeeze(-1) if self.alike else self.score(x.flatten(1))


@pytest.mark.parametrize(("alike", "found"), [(True, []), (False, ["constant-targets"])])
def test_the_first_candidate_may_always_be_the_answer(alike, found):
    data = TensorDataset(numbers(96, 3, 4), torch.zeros(96, dtype=torch.long))
    assert told(DataLoader(data, 8, shuffle=True), classified, model=Scored(alike=alike)) == found


def test_a_fixed_judge_may_be_asked_for_one_class():
    judge = mlp().requires_grad_(False)
    data = TensorDataset(numbers(96, 4), torch.zeros(96, dtype=torch.long))
    found = told(
        DataLoader(data, 8, shuffle=True),
        lambda model, batch: classified(lambda x: judge(x + model(x)), batch),
        model=mlp(classes=4),
    )
    assert "constant-targets" not in found


@pytest.mark.parametrize("solved", [True, False])
def test_borders_may_be_zero(solved):
    model = mlp(inputs=2, classes=1)
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(6):
            points, border = numbers(16, 2, seed=step).requires_grad_(), numbers(16, 2, seed=100 + step)
            loss = F.mse_loss(model(border), torch.zeros(16, 1))
            if solved:
                slope = torch.autograd.grad(model(points).sum(), points, create_graph=True)[0]
                loss = loss + (slope[:, 0] - points[:, 1]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert ("constant-targets" in named(seen.findings)) is not solved
