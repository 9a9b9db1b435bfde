"""Tests that concern several rules about text."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import named, plain, whole
from tests.checks.text.programs import END, PAD, texts, trained
from tests.checks.texts import Tokens

pytestmark = pytest.mark.sweep

TRANSLATED = {
    "": [], "future": ["future-tokens-in-logits"], "turned": ["padding-in-attention"],
    "visible": ["padding-in-attention"], "unshifted": ["targets-equal-inputs"], "twice": ["targets-shifted-twice"],
    "counted": ["padding-in-loss"], "one end": ["end-token-ignored"],
}  # fmt: skip


class Translator(nn.Module):
    """An encoder and a decoder; `fault` is what is wrong with their masks."""

    def __init__(self, fault=""):
        super().__init__()
        torch.manual_seed(0)
        self.fault = fault
        self.source, self.target = nn.Embedding(32, 16, padding_idx=PAD), nn.Embedding(32, 16, padding_idx=PAD)
        self.places = nn.Parameter(0.1 * torch.randn(16, 16))
        self.encoder = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(16, 2, 16, batch_first=True)
        self.out = nn.Linear(16, 32)

    def forward(self, batch, *, target):
        hidden = (batch["source"] != PAD) if self.fault == "turned" else (batch["source"] == PAD)
        memory = self.source(batch["source"]) + self.places[: batch["source"].shape[1]]
        memory = self.encoder(memory, src_key_padding_mask=hidden)
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(2 if self.fault == "future" else 1)
        x = self.target(target) + self.places[: target.shape[1]]
        seen = None if self.fault == "visible" else hidden
        return self.out(self.decoder(x, memory, tgt_mask=future, memory_key_padding_mask=seen))


@pytest.mark.parametrize("fault", TRANSLATED)
def test_both_texts_of_an_encoder_and_a_decoder_are_told_apart(fault):
    model = Translator(fault)
    source, target = texts([3, 5, 7, 8]), texts([4, 5, 6, 6], seed=9, end=PAD if fault == "one end" else END)
    cut = {"unshifted": (1, None, 1), "twice": (0, -2, 2)}.get(fault, (0, -1, 1))
    given, wanted = target[:, cut[0] : cut[1]], target[:, cut[2] :]
    ignored = -100 if fault == "counted" else PAD

    def step(_):
        scores = model({"source": source}, target=given)
        return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=ignored)

    assert trained(model, step) == TRANSLATED[fault]


class TimeFirst(nn.Module):
    """torch's whole transformer, which is given time in its first dimension."""

    def __init__(self, *, sees_padding=False, sees_future=False):
        super().__init__()
        torch.manual_seed(0)
        self.sees_padding, self.sees_future = sees_padding, sees_future
        self.embed, self.out = nn.Embedding(32, 16), nn.Linear(16, 32)
        self.body = nn.Transformer(16, 2, 1, 1, 16, batch_first=False)

    def forward(self, source, target):
        length = target.shape[0]
        hidden = (source == PAD).t()
        future = torch.ones(length, length, dtype=torch.bool).triu(1 + length * self.sees_future)
        seen = {} if self.sees_padding else {"memory_key_padding_mask": hidden}
        x = self.embed(source), self.embed(target)
        return self.out(self.body(*x, tgt_mask=future, src_key_padding_mask=hidden, **seen))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({}, []),
        ({"sees_padding": True}, ["padding-in-attention"]),
        ({"sees_future": True}, ["future-tokens-in-logits"]),
    ],
)
def test_both_texts_with_time_first(faults, expected):
    model, source, target = TimeFirst(**faults), texts([3, 5, 7, 8]).t(), texts([4, 5, 6, 7], seed=9).t()

    def step(_):
        return F.cross_entropy(model(source, target[:-1]).flatten(0, 1), target[1:].flatten(), ignore_index=PAD)

    assert trained(model, step) == expected


BY_HAND = {
    "masked": (1, lambda loss, real: (loss * real).sum() / real.sum(), []),
    "padding counted": (1, lambda loss, real: loss.mean(), ["padding-in-loss"]),
    "unshifted": (0, lambda loss, real: (loss * real).sum() / real.sum(), ["targets-equal-inputs"]),
    "twice": (2, lambda loss, real: (loss * real).sum() / real.sum(), ["targets-shifted-twice"]),
}


def by_hand(scores, wanted):
    return -scores.log_softmax(-1).gather(-1, wanted[..., None]).squeeze(-1)


@pytest.mark.parametrize("form", BY_HAND)
@pytest.mark.parametrize("loss", [by_hand, lambda s, y: F.cross_entropy(s.transpose(1, 2), y, reduction="none")])
def test_losses_that_are_masked_or_written_by_hand(form, loss):
    shift, reduced, expected = BY_HAND[form]
    tokens = texts([4, 6, 8, 9])
    given, wanted = tokens[:, : tokens.shape[1] - 2], tokens[:, shift : shift + tokens.shape[1] - 2]
    model = Tokens()
    assert trained(model, lambda _: reduced(loss(model(given), wanted), wanted != PAD)) == expected


class Cell(nn.Module):
    """One step of a decoder."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.cell, self.out = nn.Embedding(32, 8), nn.GRUCell(8, 8), nn.Linear(8, 32)

    def forward(self, column, state):
        state = self.cell(self.embed(column), state)
        return self.out(state), state


@pytest.mark.parametrize(
    ("shift", "ignored", "expected"),
    [
        (1, PAD, []),
        (0, PAD, ["targets-equal-inputs"]),
        (2, PAD, ["targets-shifted-twice"]),
        (1, -100, ["padding-in-loss"]),
    ],
)
def test_a_loop_that_calls_a_decoder_for_every_column(shift, ignored, expected):
    model, text = Cell(), texts([4, 5, 6, 8])

    def step(_):
        state, loss = torch.zeros(4, 8), 0.0
        for column in range(text.shape[1] - shift):
            scores, state = model(text[:, column], state)
            loss = loss + F.cross_entropy(scores, text[:, column + shift], ignore_index=ignored)
        return loss

    assert trained(model, step) == expected


GO, STOP = 1, 2


class Bucketed(nn.Module):
    """Says the next token of a text, whose padding its table names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.read = nn.Embedding(24, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True)
        self.say = nn.Linear(16, 24)

    def forward(self, given):
        return self.say(self.read(self.embed(given))[0])


def in_buckets(criterion):
    """What is found in batches of texts of about one length, of which the first need no padding."""
    model, drawn = Bucketed(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(8):
            words = torch.randint(3, 24, (8, 4), generator=drawn)
            given = torch.cat([torch.full((8, 1), GO), words], 1)
            wanted = torch.cat([words, torch.full((8, 1), STOP)], 1)
            for row in range(number // 2):
                given[row, 3:], wanted[row, 2:] = 0, torch.tensor([STOP, 0, 0])
            optimizer.zero_grad()
            criterion(model(given).transpose(1, 2), wanted).backward()
            optimizer.step()
    return [each.check for each in seen.findings.findings]


def test_padding_and_ends_are_looked_for_in_all_batches():
    ones = torch.ones(24)
    assert in_buckets(nn.CrossEntropyLoss(ignore_index=0)) == []
    assert in_buckets(nn.CrossEntropyLoss()) == ["padding-in-loss"]
    assert in_buckets(nn.CrossEntropyLoss(ones.index_fill(0, torch.tensor([0, STOP]), 0.0))) == ["end-token-ignored"]


class TimeFirstReader(nn.Module):
    """A language model that is given (time, samples), and returns one row per token."""

    def __init__(self, batch_first=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.lstm = nn.Embedding(32, 8), nn.LSTM(8, 8, batch_first=batch_first)
        self.end = nn.Linear(8, 32)

    def forward(self, tokens):
        return self.end(self.lstm(self.embed(tokens))[0]).flatten(0, 1)


@pytest.mark.parametrize(
    ("shift", "batch_first", "expected"),
    [(1, False, []), (0, False, ["targets-equal-inputs"]), (1, True, ["samples-mixed-in-batch"])],
)
def test_time_may_come_first(shift, batch_first, expected):
    text = whole(32, 13, 6)
    found = plain(TimeFirstReader(batch_first), x=text[:12], y=text[shift : shift + 12].flatten())
    assert named(found) == expected
