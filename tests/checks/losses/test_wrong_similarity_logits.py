"""wrong-similarity-logits: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import mlp, named, numbers, twin

IMAGES = numbers(16, 4, seed=1)
TEXTS = IMAGES @ numbers(4, 4, seed=2)
PLACES = torch.arange(16)


def contrasted(loss):
    """What is found in two encoders that are trained with this loss of their outputs."""
    one, other = mlp(classes=6), mlp(classes=6)
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.01)
    with surefoot.watch() as seen:
        for step in range(5):
            shuffled = torch.randperm(16, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            loss(one(IMAGES[shuffled]), other(TEXTS[shuffled])).backward()
            optimizer.step()
    return seen.findings


def unit(values):
    return F.normalize(values, dim=-1)


@twin("wrong-similarity-logits")
def _(buggy):
    def loss(image, text):
        cosines = unit(image) @ unit(text).t()
        return F.cross_entropy(cosines * 0.07 if buggy else cosines / 0.07, PLACES)

    return contrasted(loss)


FORMS = {
    "both ways": (lambda a, b: both(unit(a) @ unit(b).t() / 0.1), []),
    "a learned scale": (lambda a, b: F.cross_entropy(unit(a) @ unit(b).t() * torch.tensor(2.66).exp(), PLACES), []),
    "plain products": (lambda a, b: F.cross_entropy(a @ b.t(), PLACES), []),
    "products by the root of the width": (lambda a, b: F.cross_entropy(a @ b.t() / 6**0.5, PLACES), []),
    "cosines as they are": (lambda a, b: F.cross_entropy(unit(a) @ unit(b).t(), PLACES), []),
    "one side": (lambda a, b: F.cross_entropy(unit(a) @ b.t() / 0.1, PLACES), None),
    "over the batch": (lambda a, b: F.cross_entropy(F.normalize(a, dim=0) @ F.normalize(b, dim=0).t(), PLACES), None),
    "not normalised": (lambda a, b: F.cross_entropy(a @ b.t() / 0.1, PLACES), None),
    "negative": (lambda a, b: F.cross_entropy(-(unit(a) @ unit(b).t()) / 0.1, PLACES), None),
}


def both(logits):
    return (F.cross_entropy(logits, PLACES) + F.cross_entropy(logits.t(), PLACES)) / 2


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_logits(form):
    loss, expected = FORMS[form]
    assert named(contrasted(loss)) == (["wrong-similarity-logits"] if expected is None else expected)


def viewed(loss):
    """What is found where two views of each sample are compared with all others."""
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))
    torch.manual_seed(0)
    for each in model.parameters():
        nn.init.normal_(each, std=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with surefoot.watch() as seen:
        for step in range(5):
            x = numbers(12, 4, seed=step)
            first, second = x + 0.01 * torch.randn(12, 4), x + 0.01 * torch.randn(12, 4)
            optimizer.zero_grad()
            loss(unit(model(first)), unit(model(second))).backward()
            optimizer.step()
    return seen.findings


def views(masked, order, interleaved=False):
    def loss(one, other):
        both = torch.stack([one, other], 1).flatten(0, 1) if interleaved else torch.cat([one, other])
        logits = both @ both.t() / 0.5
        if masked:
            logits = logits.masked_fill(torch.eye(len(both), dtype=torch.bool), -1e9)
        return F.cross_entropy(logits, order)

    return loss


HALF = (torch.arange(24) + 12) % 24
NEXT = torch.arange(24) ^ 1


@pytest.mark.parametrize(("masked", "order", "interleaved", "expected"), [
    (True, HALF, False, []),
    (True, NEXT, True, []),
    (False, HALF, False, ["wrong-similarity-logits"]),
    (True, NEXT, False, ["wrong-similarity-logits"]),
    (True, HALF, True, ["wrong-similarity-logits"]),
], ids=["halves", "pairs", "itself", "halves as pairs", "pairs as halves"])  # fmt: skip
def test_views_of_samples(masked, order, interleaved, expected):
    assert named(viewed(views(masked, order, interleaved))) == expected
