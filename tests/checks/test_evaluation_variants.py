"""Other evaluations than the twins have: what is kept of batches, what becomes of scores, which samples come."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from surefoot.checks.source.cutoffs import cut_at_half
from surefoot.checks.source.evaluation_loop import Line, kept_by, loop_around
from tests.checks.test_data_variants import KINDS, TOLD, by_permutation, stepped
from tests.checks.twins import mlp

pytestmark = pytest.mark.sweep

KEPT = {
    # a meter that is not told how many samples there are, and one that is
    "for x, y in data:\n    meter.update(f(x).item())\nprint(meter.avg)": ["mean"],
    "for x, y in data:\n    meter.update(f(x).item(), len(x))\nprint(meter.avg)": [],
    # items of a dict, attributes, places of an array
    "for x, y in data:\n    t['loss'] += f(x).item()\nr = {k: v / len(data) for k, v in t.items()}": ["mean"],
    "for x, y in data:\n    t['loss'] += f(x).item() * len(x)\n    t['n'] += len(x)\nr = t['loss'] / t['n']": [],
    "for x, y in data:\n    self.total += f(x).item()\nself.seen.append(self.total / len(data))": ["mean"],
    "for i, x in enumerate(data):\n    losses[i] = f(x)\nprint(losses.mean())": ["mean"],
    # by what they are divided
    "steps = math.ceil(len(a) / 8)\nfor k in range(steps):\n    total += f(x).item()\nprint(total / steps)": ["mean"],
    "for x, y in data:\n    total += f(x).item()\nprint(s * total / -(-len(a) // 8))": ["mean"],
    "n = len(data)\nfor x, y in data:\n    total += f(x).item()\ntotal /= n": ["mean"],
    "for x, y in data:\n    total, n = total + f(x).sum().item(), n + len(x)\nprint(total / n)": [],
    # means that are brought up to date
    "for i, x in enumerate(data, 1):\n    m += (f(x).item() - m) / i\nprint(m)": ["mean"],
    "for i, x in enumerate(data):\n    m = (m * i + f(x).item()) / (i + 1)\nprint(m)": ["mean"],
    # functions of the same file
    "def acc(z):\n    return z.sum() / len(z)\nfor x, y in data:\n    a.append(acc(f(x)))\nprint(np.mean(a))": ["mean"],
    "def hits(z):\n    return z.sum()\nfor x, y in data:\n    z = f(x)\n    a += hits(z)\nprint(a / len(data))": [],
    "def acc(z):\n    r = z == 1\n    m = r.float().mean()\n    return m.item()\n"
    "for x, y in data:\n    z = f(x)\n    a += acc(z)\n    n += 1\nprint(a / n)": ["mean"],
    "def acc(z):\n    return z.mean(1)\nfor x, y in data:\n    a += acc(f(x)).sum()\nprint(a / len(data))": [],
    # an attribute of what a call gives
    "for x, y in data:\n    total += f(x).loss.item()\n    n += 1\nprint(total / n)": ["mean"],
    "for x, y in data:\n    total += f(x).loss.item() * len(x)\n    n += len(x)\nprint(total / n)": [],
    # methods that a framework calls for every batch
    "def validation_step(self, x, i):\n    self.a.append(f(x))\n"
    "def end(self):\n    print(torch.stack(self.a).mean())": ["mean"],
    "def validation_step(self, x, i):\n    z = f(x)\n    self.a += (z == 1).float().mean().item()\n"
    "    self.n = i + 1\n"
    "def end(self):\n    print(self.a / self.n)": ["mean"],
    "def validation_step(self, x, i):\n    self.a += f(x).sum().item()\n    self.n += len(x)\n"
    "def end(self):\n    print(self.a / self.n)": [],
    # scores and numbers of single samples that are gathered are no means
    "for x, y in data:\n    a.append(f(x).sum((1, 2)) / n)\nprint(torch.cat(a).mean())": [],
    "for x, y in data:\n    z, t = f(x)\n    a.append(z)\nprint(torch.cat(a).mean())": [],
    # the last of several, of items, of attributes, shown meanwhile or begun anew
    "for x, y in data:\n    loss, acc = f(x)\nprint(loss.item())": ["last"],
    "for x, y in data:\n    s['loss'] = f(x).item()\nprint(s)": ["last"],
    "for x, y in data:\n    self.loss = f(x).item()\nprint(self.loss)": ["last"],
    "for x, y in data:\n    loss = f(x).item()\n    bar.set_postfix(loss=loss)\nprint(loss)": ["last"],
    "for x, y in data:\n    loss = f(x).item()\n    seen.append(loss)\nprint(loss, sum(seen))": [],
    "for x, y in data:\n    loss = f(x)\n    total += loss.item() * len(x)\nprint(loss.item())": ["last"],
    "for x, y in data:\n    seen.append(f(x).item())\nprint(seen[-1])": ["last"],
    "for x, y in data:\n    seen.append(f(x).item())\nprint(seen[-1], sum(seen) / n)": [],
    "for x, y in data:\n    loss = f(x)\n    total += loss.item() * len(x)\nprint(total / n)": [],
    "for x, y in data:\n    total = 0.0\n    total += f(x).item() * len(x)\nprint(total)": ["last"],
    "for x, y in data:\n    losses = []\n    losses.append(f(x).item())\nprint(sum(losses) / len(losses))": ["last"],
    "total = 0.0\nfor x, y in data:\n    total += f(x).item() * len(x)\nprint(total)": [],
    "for x, y in data:\n    z = f(x)\n    p = z.argmax(1)\nprint((p == y).float().mean())": ["last"],
    "for x, y in data:\n    z = f(x)\n    p = z.argmax(1)\nshow(p, y)": [],
}  # fmt: skip


@pytest.mark.parametrize(("text", "kinds"), KEPT.items())
def test_what_loops_keep_of_their_batches(text, kinds, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(text)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "f(x)" in line)
    line, loop, scope = loop_around([Line(str(file), number)])
    told = {number} if "z = f(x)" not in text and "sum()" not in text else set()
    assert [kept.kind for kept in kept_by(loop, scope, line.file, told)] == kinds


CUT = {
    "p = z.numpy() > 0.5": True,
    "p = [float(each > 0.5) for each in z.tolist()]": True,
    "s = z.numpy()\np = s >= 0.5": True,
    "half = 0.5\ns = z.numpy()\np = s > half": True,
    "p = np.round(z.numpy())": True,
    "s = z.numpy()\np = 1 / (1 + np.exp(-s)) > 0.5": False,
    "p = torch.sigmoid(z).numpy() > 0.5": False,
    "p = z.numpy() > 0": False,
    "shown = round(z.item(), 3)": False,
}


@pytest.mark.parametrize(("text", "cut"), CUT.items())
def test_numbers_that_leave_torch_are_followed_to_where_they_are_cut(text, cut, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(text)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "z" in line)
    assert cut_at_half(str(file), number) is cut


def scored(made, *, loss=F.cross_entropy, classes=3, last=None):
    """What is found where an evaluation makes something of its scores."""
    model = mlp(inputs=6, classes=classes)
    model = nn.Sequential(*model, last) if last else model

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            made(model(TOLD[128:]))
        model.train()

    return stepped(by_permutation, model=model, evaluate=evaluate, loss=loss)


def of_one(function):
    return lambda given, kinds: function(given[:, 0], (kinds > 0).float())


LOGITS = {"loss": of_one(F.binary_cross_entropy_with_logits), "classes": 1}
CHANCES = {"loss": of_one(F.binary_cross_entropy), "classes": 1, "last": nn.Sigmoid()}


@pytest.mark.parametrize(
    ("made", "trained", "found"),
    [
        (lambda z: z.argmax(dim=1), {}, False),
        (lambda z: z.argmax(dim=0), {}, True),
        (lambda z: z.argmax(), {}, True),
        (lambda z: torch.max(z.softmax(1), 0), {}, True),
        (lambda z: torch.max(z.softmax(1), 1), {}, False),
        (lambda z: z.argmax(dim=1), LOGITS, True),
        (lambda z: z[:, 0].round(), LOGITS, True),
        (lambda z: z[:, 0].sigmoid().round(), LOGITS, False),
        (lambda z: z > 0, LOGITS, False),
        (lambda z: z > 0.5, CHANCES, False),
        (lambda z: z > 0, CHANCES, True),
        (lambda z: torch.sigmoid(z) > 0.5, CHANCES, True),
    ],
)
def test_scores_are_taken_for_what_they_are(made, trained, found):
    assert ("threshold-on-logits" in scored(made, **trained)) is found


def test_labels_that_share_one_softmax_cannot_both_be_above_one_half():
    def loss(given, kinds):
        return F.binary_cross_entropy_with_logits(given, F.one_hot(kinds, 3).float())

    assert "threshold-on-logits" in scored(lambda z: z.softmax(1) > 0.5, loss=loss)
    assert "threshold-on-logits" not in scored(lambda z: z.sigmoid() > 0.5, loss=loss)


class Given(NamedTuple):
    predictions: np.ndarray
    label_ids: np.ndarray


class Framework:
    """Something that evaluates whole, and gives all scores at once to a function of the user's."""

    def __init__(self, measure, prepare=None):
        self.compute_metrics, self.preprocess_logits_for_metrics = measure, prepare

    def evaluate(self, model):
        model.eval()
        with torch.no_grad():
            scores = torch.cat([model(each) for each in TOLD[128:].split(16)])
        model.train()
        prepared = self.preprocess_logits_for_metrics(scores) if self.preprocess_logits_for_metrics else scores
        self.compute_metrics(Given(prepared.numpy(), KINDS[128:].numpy()))


def above_half(given):
    return {"right": ((given.predictions > 0.5) == given.label_ids[:, None]).mean()}


def unpacked_and_above_half(given):
    scores, labels = given
    scores = scores.squeeze(-1)
    return {"right": (np.where(scores >= 0.5, 1, 0) == labels).mean()}


def above_zero(given):
    return {"right": ((given.predictions > 0) == (given.label_ids > 0.5)[:, None]).mean()}


def squashed(given):
    chances = 1 / (1 + np.exp(-given.predictions))
    return {"right": (chances > 0.5).mean()}


def chances_of(scores):
    return np.tanh(scores / 2) / 2 + 0.5


def squashed_elsewhere(given):
    chances = chances_of(given.predictions)
    return {"right": (chances > 0.5).mean()}


@pytest.mark.parametrize(
    ("measure", "prepare", "trained", "found"),
    [
        (above_half, None, LOGITS, True),
        (unpacked_and_above_half, None, LOGITS, True),
        (above_zero, None, LOGITS, False),
        (squashed, None, LOGITS, False),
        (squashed_elsewhere, None, LOGITS, False),
        (above_half, torch.sigmoid, LOGITS, False),
        (above_half, None, CHANCES, False),
    ],
)
def test_scores_that_a_framework_hands_over_are_taken_for_what_they_are(measure, prepare, trained, found):
    model = mlp(inputs=6, classes=1)
    model = nn.Sequential(*model, trained["last"]) if "last" in trained else model
    evaluate = Framework(measure, prepare).evaluate
    checks = stepped(by_permutation, model=model, evaluate=evaluate, loss=trained["loss"])
    assert ("threshold-on-logits" in checks) is found


def rows_of(batches):
    """What is found where an evaluation reads these batches of rows."""
    held = TOLD[128:172]

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            for rows in batches():
                model(held[rows]).argmax(1)
        model.train()

    return stepped(by_permutation, evaluate=evaluate, every=5)


def slices(stop):
    return [slice(start, start + 8) for start in range(0, stop, 8)]


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        (lambda: slices(44), False),
        (lambda: slices(40), True),
        (lambda: torch.randperm(44).split(8), True),
        (lambda: [torch.randperm(44)[:30]], True),
        (lambda: torch.arange(43, -1, -1).split(8), False),
        (lambda: torch.randint(10, (44,)).split(8), False),
    ],
)
def test_evaluations_by_hand_read_all_samples_and_always_the_same(batches, found):
    assert ("shuffled-evaluation" in rows_of(batches)) is found


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"batch_size": 16, "sampler": range(64)}, False),
        ({"batch_size": 16, "sampler": torch.randperm(64).tolist()}, True),
        ({"batch_size": 16, "sampler": torch.utils.data.SubsetRandomSampler(range(64))}, True),
        ({"batch_sampler": BatchSampler(SequentialSampler(range(64)), 16, drop_last=False)}, False),
        ({"batch_sampler": BatchSampler(SequentialSampler(range(64)), 24, drop_last=True)}, True),
    ],
)
def test_evaluation_loaders_of_all_kinds_read_in_order(options, found):
    loader = DataLoader(TensorDataset(TOLD[128:], KINDS[128:]), **options)

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            for x, _ in loader:
                model(x)
        model.train()

    assert ("shuffled-evaluation" in stepped(by_permutation, evaluate=evaluate)) is found
