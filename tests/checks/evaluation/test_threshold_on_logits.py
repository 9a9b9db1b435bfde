"""threshold-on-logits: the buggy and the fixed program, variants, and what looks like it and is fine."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.loaders import KINDS, TOLD, by_permutation, stepped
from tests.checks.losses.programs import YES
from tests.checks.programs import Module, X, Y, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("threshold-on-logits")
def _(buggy):
    model = mlp(classes=1)

    def guess(_):
        with torch.no_grad():
            logits = 9 * model(X)[:, 0]
            return (logits if buggy else logits.sigmoid()) > 0.5

    return plain(model, y=Y.float(), loss=lambda h, y: F.binary_cross_entropy_with_logits(h[:, 0], y), after=guess)


def test_logits_between_zero_and_one_are_logits_all_the_same():
    model = mlp(classes=1)
    nn.init.constant_(model[-1].bias, 0.5)
    nn.init.normal_(model[-1].weight, std=1e-3)

    def cut(values):
        def after(_):
            with torch.no_grad():
                (values(model(X)) > 0.5).float().mean()

        loss = F.binary_cross_entropy_with_logits
        return named(
            plain(model, loss=loss, y=YES, optimizer=torch.optim.SGD(model.parameters(), lr=1e-4), after=after)
        )

    assert cut(torch.sigmoid) == []
    assert cut(lambda logits: logits) == ["threshold-on-logits"]


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


def of_one(function):
    return lambda given, kinds: function(given[:, 0], (kinds > 0).float())


CHANCES = {"loss": of_one(F.binary_cross_entropy), "classes": 1, "last": nn.Sigmoid()}
LOGITS = {"loss": of_one(F.binary_cross_entropy_with_logits), "classes": 1}


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


def unpacked_and_above_half(given):
    scores, labels = given
    scores = scores.squeeze(-1)
    return {"right": (np.where(scores >= 0.5, 1, 0) == labels).mean()}


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
