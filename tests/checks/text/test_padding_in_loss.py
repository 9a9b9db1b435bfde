"""padding-in-loss: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import surefoot
from tests.checks.programs import Module, named, plain, sgd, twin, whole
from tests.checks.text.programs import padded
from tests.checks.texts import Tokens

pytestmark = pytest.mark.sweep


@twin("padding-in-loss")
def _(buggy):
    text = padded()

    def loss(h, y):
        return F.cross_entropy(h.flatten(0, 1), y.flatten(), ignore_index=-100 if buggy else 0)

    return plain(Tokens(), x=text[:, :-1], y=text[:, 1:], loss=loss)


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


WORDS, PAD, MASK, FIRST = 40, 0, 1, 2


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(16, WORDS)

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.body(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten())


def names(hide) -> set[str]:
    torch.manual_seed(0)
    model = Masked()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with surefoot.watch() as seen:
        for _ in range(6):
            lengths = torch.randint(5, 15, (16,))
            ids = torch.randint(FIRST, WORDS, (16, 14)) * (torch.arange(14) < lengths[:, None])
            hidden = hide(ids)
            labels = torch.where(hidden, ids, -100)
            optimizer.zero_grad()
            model(ids.masked_fill(hidden, MASK), attention_mask=(ids != PAD).long(), labels=labels).backward()
            optimizer.step()
    return {each.check for each in seen.findings.findings}


def test_padding_that_is_hidden_and_asked_for_is_in_the_loss():
    assert "padding-in-loss" in names(lambda ids: torch.rand(ids.shape) < 0.3)


def test_words_alone_are_right():
    assert "padding-in-loss" not in names(lambda ids: (torch.rand(ids.shape) < 0.3) & (ids != PAD))


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
