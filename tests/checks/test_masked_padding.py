"""Masked words: padding that is hidden and asked for like words is in the loss, though it no longer looks alike."""

import pytest
import torch
from torch import nn

import surefoot

pytestmark = pytest.mark.sweep

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
