"""labels-of-other-samples: the buggy and the fixed program, variants, and what looks like it and is fine."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import surefoot
from tests.checks.loaders import INPUTS, KINDS, LABELS, MANY, TOLD, by_permutation, stepped, trained
from tests.checks.programs import Module, mlp, named, numbers, sgd, twin, whole
from tests.checks.samples.programs import OTHERS, Maps, Samples, classified, told

pytestmark = pytest.mark.sweep


def sorted_apart(samples):
    inputs = [x for x, _ in sorted(samples, key=lambda sample: float(sample[0].sum()))]
    return torch.stack(inputs), torch.stack([y for _, y in samples])


@twin("labels-of-other-samples")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    return trained(DataLoader(data, 8, shuffle=True, collate_fn=sorted_apart if buggy else None))


@pytest.mark.parametrize("buggy", [True, False])
def test_samples_in_a_number_format_that_numpy_lacks(buggy):
    data = TensorDataset(INPUTS.bfloat16(), LABELS)
    loader = DataLoader(data, 8, shuffle=True, collate_fn=sorted_apart if buggy else None)
    found = named(trained(loader, model=mlp().bfloat16()))
    assert ("labels-of-other-samples" in found) == buggy


def names(training: TensorDataset, evaluation: TensorDataset) -> set[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train_loader, test_loader = DataLoader(training, 16, shuffle=True), DataLoader(evaluation, 16)
    with surefoot.watch() as seen:
        for _ in range(2):
            for x, y, *weights in train_loader:
                each = nn.functional.cross_entropy(model(x), y, reduction="none")
                optimizer.zero_grad()
                (each * weights[0].exp() if weights else each).mean().backward()
                optimizer.step()
            with torch.no_grad():
                sum(int((model(x).argmax(1) == y).sum()) for x, y in test_loader)
    return {each.check for each in seen.findings.findings}


def test_weights_that_were_computed_beforehand_stand_last_in_training_alone():
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    weights = 0.1 * torch.randn(200, generator=torch.Generator().manual_seed(1))
    held = TensorDataset(x[:64], y[:64])
    assert "labels-of-other-samples" not in names(TensorDataset(x[64:], y[64:], weights[64:]), held)
    apart = y[64:][torch.randperm(136, generator=torch.Generator().manual_seed(2))]
    assert "labels-of-other-samples" in names(TensorDataset(x[64:], apart), held)


@pytest.mark.parametrize("apart", [True, False])
def test_targets_that_are_taken_by_another_index_than_inputs(apart):
    def batch(step):
        rows = torch.randperm(128)[:16]
        return TOLD[rows], KINDS[torch.randperm(128)[:16] if apart else rows]

    assert stepped(batch) == (["labels-of-other-samples"] if apart else [])


@pytest.mark.parametrize("apart", [True, False])
def test_targets_that_are_shuffled_in_their_batch_unless_inputs_are_too(apart):
    def batch(step):
        x, y = by_permutation(step)
        order = torch.randperm(len(y))
        return (x if apart else x[order]), y[order]

    assert stepped(batch) == (["labels-of-other-samples"] if apart else [])


class Drawn(Dataset):
    """Labels of the samples themselves, of any sample, or of the one before."""

    def __init__(self, whose):
        self.whose = whose

    def __len__(self):
        return len(KINDS)

    def __getitem__(self, index):
        other = {"own": index, "any": int(torch.randint(len(KINDS), ())), "the one before": index - 1}[self.whose]
        return TOLD[index], KINDS[other]


@pytest.mark.parametrize("whose", ["own", "any", "the one before"])
def test_labels_that_a_data_set_takes_from_other_samples(whose):
    found = named(trained(DataLoader(Drawn(whose), 16, shuffle=True), model=mlp(inputs=6, classes=3), passes=1))
    assert found == ([] if whose == "own" else ["labels-of-other-samples"])


@pytest.mark.parametrize(("shuffled", "expected"), [("train", ["labels-of-other-samples"]), ("both", []), ("none", [])])
def test_labels_that_have_nothing_to_do_with_the_inputs_in_training_alone(shuffled, expected):
    kinds = KINDS.clone()
    kinds[:128] = kinds[:128][torch.randperm(128)] if shuffled != "none" else kinds[:128]
    kinds[128:] = kinds[128:][torch.randperm(64)] if shuffled == "both" else kinds[128:]
    train, valid = TensorDataset(TOLD[:128], kinds[:128]), TensorDataset(TOLD[128:], kinds[128:])
    loaders = DataLoader(train, 16, shuffle=True), DataLoader(valid, 16)
    assert named(trained(loaders[0], evaluation=loaders[1], model=mlp(inputs=6, classes=3))) == expected


def test_soft_targets_of_weighted_classes_are_followed():
    def weighted(prediction, y):
        return F.cross_entropy(prediction, F.one_hot(y, 3).float(), weight=torch.tensor([1.0, 2.0, 1.0]))

    assert stepped(by_permutation, loss=weighted) == []


@pytest.mark.parametrize("alone", [True, False])
def test_inputs_that_were_sorted_without_their_labels(alone):
    order = TOLD.sum(1).argsort()
    loader = DataLoader(TensorDataset(TOLD[order], KINDS if alone else KINDS[order]), 16, shuffle=True)
    found = named(trained(loader, model=mlp(inputs=6, classes=3)))
    assert found == ["labels-of-other-samples"] * alone


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


def test_several_tasks_of_one_sample_have_targets_of_their_own():
    trunk, heads = nn.Linear(4, 8), [nn.Linear(8, 3), nn.Linear(8, 3)]
    rows, targets = numbers(32, 4), [torch.randint(0, 3, (32,)), torch.randint(0, 3, (32,))]
    model = nn.ModuleList([trunk, *heads])
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for part in torch.randperm(32).split(8):
                optimizer.zero_grad()
                for head, y in zip(heads, targets, strict=True):
                    F.cross_entropy(head(trunk(rows[part])), y[part]).backward()
                optimizer.step()
    assert named(seen.findings) == []


def test_a_sample_that_parts_of_others_are_pasted_into_has_targets_of_both():
    model, rows, labels = mlp(), numbers(32, 4), torch.arange(32) % 2
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            for part in torch.randperm(32).split(16):
                other = part[torch.randperm(16)]
                out = model(rows[part])  # nothing was pasted
                optimizer.zero_grad()
                loss = 0.7 * F.cross_entropy(out, labels[part])
                loss = loss + 0.3 * F.cross_entropy(out, labels[other])
                loss.backward()
                optimizer.step()
    assert named(seen.findings) == []


def test_samples_without_labels_may_stand_beside_those_with():
    model = mlp()
    optimizer = sgd(model)
    labelled = DataLoader([(numbers(4, seed=n), n % 2) for n in range(64)], 16, shuffle=True)
    plainly = DataLoader([(numbers(4, seed=n),) for n in range(64, 128)], 16, shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for (x, y), (u,) in zip(labelled, plainly, strict=True):
                optimizer.zero_grad()
                out, other = model(x), model(u)
                (F.cross_entropy(out, y) + 0.1 * other.square().mean()).backward()
                optimizer.step()
    assert "labels-of-other-samples" not in named(seen.findings)


def test_targets_of_samples_that_were_changed_may_stand_beside_others_as_they_are():
    rows, others, labels = numbers(64, 4), numbers(64, 4, seed=1), torch.arange(64) % 2
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for part, other in zip(torch.randperm(64).split(16), torch.randperm(64).split(16), strict=True):
                optimizer.zero_grad()
                out = model(rows[part] + 0.1 * torch.randn(16, 4))
                loss = F.cross_entropy(out, labels[part]) + 0.1 * model(others[other]).square().mean()
                loss.backward()
                optimizer.step()
    assert named(seen.findings) == []


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


@pytest.mark.parametrize("shifted", [True, False])
def test_pairs_that_are_compared_both_ways_in_one_line(shifted):
    torch.manual_seed(0)
    pictures, texts = numbers(64, 6), numbers(64, 5, seed=1)
    one, two = nn.Linear(6, 8), nn.Linear(5, 8)
    optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.01)
    places = torch.arange(16)
    with surefoot.watch() as seen:
        for step in range(9):
            rows = torch.randperm(64, generator=torch.Generator().manual_seed(step))[:16]
            beside = texts[rows].roll(1, 0) if shifted else texts[rows]
            scores = F.normalize(one(pictures[rows]), dim=1) @ F.normalize(two(beside), dim=1).T
            optimizer.zero_grad()
            (F.cross_entropy(5 * scores, places) + F.cross_entropy(5 * scores.T, places)).backward()
            optimizer.step()
    assert ("labels-of-other-samples" in named(seen.findings)) is shifted
