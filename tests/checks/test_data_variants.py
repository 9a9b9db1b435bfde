"""Other forms of bugs in data and schedules than their twins have, each beside what looks like it and is fine."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

import surefoot
from surefoot.checks.samples.dependence import dependence
from surefoot.checks.source.evaluation_loop import Line, kept_by, loop_around
from tests.checks.test_variants import named
from tests.checks.twins import Module, mlp, numbers, plain, sgd, whole
from tests.checks.twins.data import COUNT, INPUTS, LABELS, trained
from tests.checks.twins.losses import Tokens

pytestmark = pytest.mark.sweep

MANY, KINDS = numbers(192, 6), whole(3, 192)
TOLD = numbers(3, 6, seed=5)[KINDS] * 3 + MANY
"""Inputs that tell their kind."""


def stepped(batches, *, model=None, evaluate=None, every=10, loss=F.cross_entropy, schedule=None, updates=20):
    """A loop that is given its batches by a function, evaluates now and then, and steps a scheduler per update."""
    model = model or mlp(inputs=6, classes=3)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = schedule(optimizer) if schedule else None
        for step in range(updates):
            x, y = batches(step)
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            if evaluate is not None and step % every == every - 1:
                evaluate(model)
    return named(seen.findings)


def by_permutation(step):
    rows = torch.randperm(128)[:16]
    return TOLD[rows], KINDS[rows]


# ------------------------------------------------------------------------------------------- whose labels


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


def test_dependence_is_told_from_chance():
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(128, 5))
    assert dependence(x, x[:, :2]) > 8
    assert dependence(TOLD.numpy(), KINDS.numpy()) > 8
    assert abs(dependence(x, drawn.normal(size=(128, 2)))) < 3
    assert dependence(x, np.ones((128, 1))) == 0


# ------------------------------------------------------------------------------------------- what is evaluated


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(slice(96, 144), ["evaluation-samples-in-training"]), (slice(128, 192), []), (slice(0, 128), [])],
    ids=["overlapping", "held out", "the training set"],
)
def test_samples_of_a_loop_without_loaders_that_are_evaluated(rows, expected):
    def evaluate(model):
        model.eval()
        with torch.no_grad():
            model(TOLD[rows])
        model.train()

    assert stepped(by_permutation, evaluate=evaluate) == expected


@pytest.mark.parametrize(("every", "mode", "expected"), [(10, True, 1), (10, False, 0), (1, True, 0)])
def test_a_lone_forward_in_training_mode_is_an_evaluation_if_it_is_rare(every, mode, expected):
    def evaluate(model):
        model.train(mode)
        with torch.no_grad():
            model(TOLD[128:]).argmax(1)
        model.train()

    found = stepped(by_permutation, model=mlp(nn.Dropout(0.5), inputs=6, classes=3), evaluate=evaluate, every=every)
    assert found == ["training-mode-in-evaluation"] * expected


@pytest.mark.parametrize(("every", "mode", "expected"), [(5, True, True), (5, False, False), (1, True, False)])
def test_a_copy_of_a_model_is_evaluated_in_evaluation_mode(every, mode, expected):
    model = mlp(nn.Dropout(0.5), inputs=6, classes=3)
    average = copy.deepcopy(model).requires_grad_(False).train(mode)

    def evaluate(_):
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 0.1)
            for x in TOLD[128:].split(32):
                average(x).argmax(1)

    found = stepped(by_permutation, model=model, evaluate=evaluate, every=every)
    assert ("training-mode-in-evaluation" in found) is expected


@pytest.mark.parametrize("probabilities", [True, False])
def test_outputs_as_they_are_that_are_compared_with_one_half(probabilities):
    model = Module(lambda self, x: self.layer(x).abs().clamp(max=0.9), layer=lambda: nn.Linear(6, 3))

    def evaluate(model):
        with torch.no_grad():
            logits = model(TOLD[128:])
            return (logits.sigmoid() if probabilities else logits) > 0.5

    def loss(prediction, y):
        return F.binary_cross_entropy_with_logits(prediction, F.one_hot(y, 3).float())

    found = stepped(by_permutation, model=model, evaluate=evaluate, loss=loss)
    assert ("threshold-on-logits" in found) is not probabilities


@pytest.mark.parametrize("augmented", [True, False])
def test_batches_that_are_augmented_on_their_way_into_an_evaluated_model(augmented):
    valid = DataLoader(TensorDataset(TOLD[128:], KINDS[128:]), 16)

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            for x, _ in valid:
                model(x * (1 + torch.rand(())) if augmented else x)
        model.train()

    assert stepped(by_permutation, evaluate=evaluate) == (["augmented-evaluation-data"] if augmented else [])


class Numbers(IterableDataset):
    def __init__(self, first, last):
        self.rows = range(first, last)

    def __iter__(self):
        return ((TOLD[row], KINDS[row]) for row in self.rows)


@pytest.mark.parametrize(("first", "expected"), [(100, ["evaluation-samples-in-training"]), (128, [])])
def test_samples_of_two_streams(first, expected):
    loaders = DataLoader(Numbers(0, 128), 16), DataLoader(Numbers(first, 192), 16)
    assert named(trained(loaders[0], evaluation=loaders[1], model=mlp(inputs=6, classes=3), passes=1)) == expected


def test_soft_targets_of_weighted_classes_are_followed():
    def weighted(prediction, y):
        return F.cross_entropy(prediction, F.one_hot(y, 3).float(), weight=torch.tensor([1.0, 2.0, 1.0]))

    assert stepped(by_permutation, loss=weighted) == []


# ------------------------------------------------------------------------------------------- what is trained on


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


@pytest.mark.parametrize("ordered", [True, False])
def test_batches_that_hold_one_class_each(ordered):
    order = KINDS.argsort() if ordered else torch.randperm(192)

    def batch(step):
        rows = order[16 * step : 16 * step + 16]
        return TOLD[rows], KINDS[rows]

    assert stepped(batch, updates=12) == (["sorted-training-data"] if ordered else [])


@pytest.mark.parametrize("seeded", [True, False])
def test_a_seed_that_is_set_in_every_step_before_the_batch_is_drawn(seeded):
    def batch(step):
        torch.manual_seed(3 if seeded else step)
        noise = torch.randn(16, 6)
        return TOLD[16 * (step % 8) : 16 * (step % 8) + 16] + noise, KINDS[16 * (step % 8) : 16 * (step % 8) + 16]

    assert stepped(batch) == (["reseeded-steps"] if seeded else [])


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("loss", [F.mse_loss, lambda a, b: (a - b).abs().mean()])
def test_constant_targets_of_a_regression(loss, lost):
    def batch(step):
        x, y = by_permutation(step)
        return x, torch.zeros(16, 3) if lost else F.one_hot(y, 3) + 0.5 * x[:, :3]

    assert stepped(batch, loss=loss) == (["constant-targets"] if lost else [])


def test_derivatives_that_are_to_be_zero_are_no_constant_targets():
    def residual(prediction, y):
        return F.mse_loss(prediction.diff(dim=0), torch.zeros(15, 3))

    assert stepped(by_permutation, loss=residual) == []


# ------------------------------------------------------------------------------------------- schedules


def warm_and_cosine(horizon):
    def schedule(optimizer):
        parts = [LinearLR(optimizer, 0.1, total_iters=4), CosineAnnealingLR(optimizer, horizon)]
        return SequentialLR(optimizer, parts, [4])

    return schedule


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (warm_and_cosine(3), ["scheduler-at-wrong-rate"]),
        (warm_and_cosine(16), []),
        (lambda optimizer: StepLR(optimizer, 1, 0.1), ["scheduler-at-wrong-rate"]),
        (lambda optimizer: StepLR(optimizer, 8, 0.1), []),
        (lambda optimizer: LinearLR(optimizer, 1.0, 0.0, 3), ["scheduler-at-wrong-rate"]),
        (lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=20_000), ["scheduler-at-wrong-rate"]),
        (lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=21), []),
        (lambda optimizer: LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 1e5)), ["zero-learning-rate"]),
        (lambda optimizer: LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 10)), []),
    ],
)
def test_rates_over_a_whole_run(schedule, expected):
    assert stepped(by_permutation, schedule=schedule) == expected


@pytest.mark.parametrize("per_batch", [True, False])
def test_milestones_that_all_lie_in_the_first_pass(per_batch):
    model, loader = mlp(), DataLoader(TensorDataset(INPUTS, LABELS), 4, shuffle=True)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = MultiStepLR(optimizer, [2, 4], 0.5)
        for _ in range(5):
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if per_batch:
                    scheduler.step()
            if not per_batch:
                scheduler.step()
    assert COUNT // 4 > 4
    assert named(seen.findings) == (["scheduler-at-wrong-rate"] if per_batch else [])


# ------------------------------------------------------------------------------------------- what a loop keeps

KEPT = {
    "for x in batches:\n    total += f(x).item()\nprint(total / len(batches))": ["mean"],
    "for x in batches:\n    total += f(x).item()\n    n += 1\ntotal /= n": ["mean"],
    "for x in batches:\n    out = f(x)\n    total.append(out.item())\nprint(np.mean(total))": ["mean"],
    "for x in batches:\n    total.append(f(x).item() * len(x))\nprint(sum(total) / len(batches))": [],
    "for x in batches:\n    total += f(x).item()\nprint(total / len(batches.dataset))": [],
    "for x in batches:\n    loss = f(x).item()\nprint(loss)": ["last"],
    "for x in batches:\n    loss = f(x).item()\n    best = min(best, loss)\nprint(loss)": [],
    "for x in batches:\n    loss = f(x).item()\nloss = 0\nprint(loss)": [],
    "for x in batches:\n    total += f(x).item() * scale\n    n += 1\nprint(total / n)": ["mean"],
    "for x in batches:\n    n = len(x)\n    total += f(x).item() * n\nprint(total / len(batches))": [],
    "for x in batches:\n    off = (f(x) - 1).abs().sum()\nprint(off)": ["last"],
    "print(sum(f(x).item() for x in batches) / len(batches))": ["mean"],
    "print(sum(f(x).item() * len(x) for x in batches) / len(batches))": [],
    "a = [f(x).item() for x in batches]\nprint(sum(a) / len(a))": ["mean"],
}


@pytest.mark.parametrize(("text", "kinds"), KEPT.items())
def test_what_a_loop_keeps_of_the_means_of_its_batches(text, kinds, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(text)
    number = 1 + next(n for n, line in enumerate(text.splitlines()) if "f(x)" in line)
    line, loop, scope = loop_around([Line(str(file), number)])
    assert [kept.kind for kept in kept_by(loop, scope, line.file, {number})] == kinds


def answered(*, lost):
    """Two questions about each sample, of which one may always have the same answer."""
    kinds = torch.zeros_like(KINDS) if lost else KINDS
    loader = DataLoader(TensorDataset(TOLD, kinds, TOLD[:, 0]), 16, shuffle=True)
    model = mlp(inputs=6, classes=4)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for x, kind, size in loader:
            optimizer.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out[:, :3], kind)
            (loss + F.mse_loss(out[:, 3], size)).backward()
            optimizer.step()
    return named(seen.findings)


def test_one_of_several_losses_whose_targets_are_all_the_same():
    assert answered(lost=True) == ["constant-targets"]
    assert answered(lost=False) == []


@pytest.mark.parametrize("alone", [True, False])
def test_inputs_that_were_sorted_without_their_labels(alone):
    order = TOLD.sum(1).argsort()
    loader = DataLoader(TensorDataset(TOLD[order], KINDS if alone else KINDS[order]), 16, shuffle=True)
    found = named(trained(loader, model=mlp(inputs=6, classes=3)))
    assert found == ["labels-of-other-samples"] * alone


# ------------------------------------------------------------------------------------------- what enters a model


class Noise(IterableDataset):
    """A share of the samples for each worker, with noise from one generator or from one of the worker's own."""

    def __init__(self, *, shared):
        self.shared, self.generator = shared, torch.Generator().manual_seed(0)

    def __iter__(self):
        worker = get_worker_info()
        if not self.shared:
            self.generator.manual_seed(worker.id)
        for row in range(worker.id, 128, worker.num_workers):
            yield TOLD[row] + torch.randn(6, generator=self.generator), KINDS[row]


@pytest.mark.parametrize("shared", [True, False])
def test_workers_of_a_stream_that_draw_from_one_generator(shared):
    loader = DataLoader(Noise(shared=shared), 16, num_workers=2)
    found = named(trained(loader, model=mlp(inputs=6, classes=3), passes=1))
    assert found == (["shared-worker-randomness"] if shared else [])


@pytest.mark.parametrize("counted", [True, False])
def test_padding_is_known_by_the_lengths_that_come_with_it(counted):
    lengths = torch.tensor([11, 12, 12, 11])
    text = torch.where(torch.arange(12) < lengths[:, None], 2 + whole(29, 4, 12), 0)
    tags = torch.where(text > 0, text % 3 + 1, 0)
    model = Module(
        lambda self, x, n: self.head(self.embed(x)), embed=lambda: nn.Embedding(32, 8), head=lambda: nn.Linear(8, 4)
    )
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            ignored = -100 if counted else 0
            F.cross_entropy(model(text, lengths).flatten(0, 1), tags.flatten(), ignore_index=ignored).backward()
            optimizer.step()
    assert named(seen.findings) == (["padding-in-loss"] if counted else [])


@pytest.mark.parametrize("ignored", [31, -100])
def test_an_end_between_documents_that_the_loss_ignores(ignored):
    text = whole(30, 4, 13)
    text[:, 5] = 31

    def loss(h, y):
        return F.cross_entropy(h.flatten(0, 1), y.flatten(), ignore_index=ignored)

    found = named(plain(Tokens(), x=text[:, :-1], y=text[:, 1:], loss=loss))
    assert found == (["end-token-ignored"] if ignored == 31 else [])


@pytest.mark.parametrize(
    ("shape", "values", "expected"),
    [
        ((8, 3, 8, 8), lambda raw: raw * 0.9, ["unscaled-inputs"]),
        ((8, 3, 8, 8), lambda raw: raw / 255, []),
        ((8, 1, 64), lambda raw: raw, ["unscaled-inputs"]),
        ((8, 1, 64), lambda raw: raw / 255, []),
        ((8, 1, 64), lambda raw: (raw - 128) / 1e7, ["unscaled-inputs"]),
    ],
)
def test_bytes_and_what_was_scaled_down_twice(shape, values, expected):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3) if len(shape) == 4 else nn.Conv1d(1, 4, 3)
    model = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(shape))
    x = values(whole(256, *shape).float())
    assert named(plain(model, x=x, y=whole(2, 8), optimizer=sgd(model, lr=1e-5))) == expected


def test_gradients_are_left_over_in_a_loop_that_counts_its_batches():
    def left(batches: int) -> list[str]:
        model = mlp()
        optimizer = sgd(model)
        loader = DataLoader(TensorDataset(INPUTS[: 8 * batches], LABELS[: 8 * batches]), 8, shuffle=True)
        with surefoot.watch(model, optimizer) as seen:
            for _ in range(3):
                read = iter(loader)
                for number in range(1, len(loader) + 1):
                    x, y = next(read)
                    (torch.nn.functional.cross_entropy(model(x), y) / 2).backward()
                    if number % 2 == 0:
                        optimizer.step()
                        optimizer.zero_grad()
        return named(seen.findings)

    assert "leftover-micro-batches" in left(3)
    assert left(4) == []
