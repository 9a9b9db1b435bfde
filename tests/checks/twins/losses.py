"""Twins of the checks on losses and targets."""

import math
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.twins import Module, X, Y, mlp, numbers, plain, sgd, twin, whole


def quietly(function, *args, **options):
    """Without the warning that torch gives of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


def ending(end):
    return Module(lambda self, x: end(self.body(x)), body=mlp)


@twin("softmax-before-cross-entropy")
def _(buggy):
    return plain(ending(lambda h: h.softmax(-1) if buggy else h.log_softmax(-1)))  # the second changes nothing


@twin("softmax-over-wrong-dimension")
def _(buggy):
    model = Module(lambda self, x: self.end(self.score(x).softmax(0 if buggy else -1) * x),
                   score=lambda: nn.Linear(4, 4), end=lambda: nn.Linear(4, 2))  # fmt: skip
    return plain(model)


@twin("sigmoid-before-bce-with-logits")
def _(buggy):
    model = ending(lambda h: h[:, 0].sigmoid() if buggy else h[:, 0])
    return plain(model, loss=lambda h, y: F.binary_cross_entropy_with_logits(h, y.float()))


@twin("logits-in-nll-loss")
def _(buggy):
    return plain(ending(lambda h: h if buggy else h.log_softmax(-1)), loss=F.nll_loss)


@twin("probabilities-in-kl-div")
def _(buggy):
    teacher = numbers(8, 2, seed=1).softmax(-1)
    model = ending(lambda h: h.softmax(-1) if buggy else h.log_softmax(-1))
    return plain(model, y=teacher, loss=lambda h, y: F.kl_div(h, y, reduction="batchmean"))


@twin("kl-div-mean-over-elements")
def _(buggy):
    target, reduction = numbers(8, 2, seed=1).softmax(-1), "mean" if buggy else "batchmean"
    return plain(mlp(), y=target, loss=lambda h, y: quietly(F.kl_div, h.log_softmax(-1), y, reduction=reduction))


@twin("activation-before-cross-entropy")
def _(buggy):
    return plain(ending(lambda h: h.relu() if buggy else 30 * torch.tanh(h / 30)))


@twin("all-targets-ignored")
def _(buggy):
    target = torch.full((8,), -100)
    target[0] = -100 if buggy else 1
    return plain(mlp(), y=target)


@twin("constant-targets")
def _(buggy):
    return plain(mlp(), y=torch.zeros(8, dtype=torch.long) if buggy else torch.tensor([0, 1] * 4))


@twin("broadcast-loss")
def _(buggy):
    return plain(mlp(classes=1), y=numbers(8), loss=lambda h, y: ((h if buggy else h.squeeze(-1)) - y).pow(2).mean())


@twin("negated-loss")
def _(buggy):
    return plain(mlp(), loss=lambda h, y: F.cross_entropy(h, y) * (-1 if buggy else 1))


@twin("ctc-input-not-log-probabilities")
def _(buggy):
    model = Module(lambda self, x: self.end(x), end=lambda: nn.Linear(4, 5))

    def loss(h, y):
        given = h if buggy else h.log_softmax(-1)
        return F.ctc_loss(given, y, torch.full((3,), 12), torch.full((3,), 4))

    return plain(model, x=numbers(12, 3, 4), y=1 + whole(4, 3, 4), loss=loss)


class Tokens(nn.Module):
    """A small language model: attention under a mask, and a head."""

    def __init__(self, mask=torch.tril, width=16, vocabulary=32, drop=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix = nn.Embedding(vocabulary, width), nn.Linear(width, 3 * width)
        self.head, self.mask, self.drop = nn.Linear(width, vocabulary), mask, drop

    def forward(self, tokens, attention_mask=None):
        query, key, value = self.mix(self.embed(tokens)).chunk(3, -1)
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
        allowed = self.mask(torch.ones(tokens.shape[1], tokens.shape[1])).bool()
        if attention_mask is not None:
            allowed = allowed & attention_mask[:, None, :].bool()
        attended = scores.masked_fill(~allowed, -1e9).softmax(-1) @ value
        return self.head(attended + value)


def per_token(h, y):
    return F.cross_entropy(h.flatten(0, 1), y.flatten())


TEXT = whole(32, 4, 13)


@twin("future-tokens-in-logits")
def _(buggy):
    return plain(Tokens(torch.ones_like if buggy else torch.tril), x=TEXT[:, :-1], y=TEXT[:, 1:], loss=per_token)


@twin("targets-equal-inputs")
def _(buggy):
    return plain(Tokens(), x=TEXT[:, :-1], y=TEXT[:, :-1] if buggy else TEXT[:, 1:], loss=per_token)


@twin("targets-shifted-twice")
def _(buggy):
    text = whole(32, 4, 14)
    return plain(Tokens(), x=text[:, :12], y=text[:, 2:14] if buggy else text[:, 1:13], loss=per_token)


def padded(*, value: int = 0):
    text = 1 + whole(30, 4, 13)
    for row, length in enumerate((5, 8, 11, 13)):
        text[row, length:] = value
    return text


@twin("padding-in-loss")
def _(buggy):
    text = padded()

    def loss(h, y):
        return F.cross_entropy(h.flatten(0, 1), y.flatten(), ignore_index=-100 if buggy else 0)

    return plain(Tokens(), x=text[:, :-1], y=text[:, 1:], loss=loss)


@twin("end-token-ignored")
def _(buggy):
    text = padded(value=31)
    mask = torch.zeros_like(text)
    for row, length in enumerate((5, 8, 11, 12)):
        text[row, length:], mask[row, : length + 1] = 31, 1
    ignored = text == 31 if buggy else mask == 0
    target = text.masked_fill(ignored, -100)[:, 1:]
    model = Tokens()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            per_token(model(text[:, :-1], attention_mask=mask[:, :-1]), target).backward()
            optimizer.step()
    return seen.findings


@twin("interleaved-zero-tokens")
def _(buggy):
    text = 1 + whole(30, 4, 13)
    if buggy:
        text[:, 1::2] = 0
    return plain(Tokens(), x=text[:, :-1], y=text[:, 1:], loss=per_token)


@twin("wrapped-token-ids")
def _(buggy):
    kept = whole(1000, 64, 13).to(torch.uint8 if buggy else torch.uint16)
    text = kept.long()
    return plain(Tokens(vocabulary=1000), x=text[:, :-1], y=text[:, 1:], loss=per_token)


@twin("loss-term-without-gradient")
def _(buggy):
    model = Module(lambda self, x: (self.end(self.body(x).relu()), self.back(self.body(x).relu())),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2), back=lambda: nn.Linear(8, 4))  # fmt: skip

    def loss(out, y):
        term = F.mse_loss(out[1], X)
        return F.cross_entropy(out[0], y) + (term.item() if buggy else term)

    return plain(model, loss=loss)


@twin("far-off-initial-loss")
def _(buggy):
    model = mlp(classes=10)
    with torch.no_grad():
        model[2].weight.mul_(100 if buggy else 1)
    return plain(model, y=whole(10, 8))


@twin("symmetric-initial-weights")
def _(buggy):
    model = mlp()
    if buggy:
        nn.init.constant_(model[0].weight, 0.1)
    return plain(model)


@twin("regression-on-class-numbers")
def _(buggy):
    target = torch.arange(8.0) % 4 + (0 if buggy else 0.5)
    return plain(mlp(classes=1), y=target, loss=lambda h, y: F.mse_loss(h[:, 0], y))


@twin("threshold-on-logits")
def _(buggy):
    model = mlp(classes=1)

    def guess(_):
        with torch.no_grad():
            logits = 9 * model(X)[:, 0]
            return (logits if buggy else logits.sigmoid()) > 0.5

    return plain(model, y=Y.float(), loss=lambda h, y: F.binary_cross_entropy_with_logits(h[:, 0], y), after=guess)
