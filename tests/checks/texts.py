"""A text and a small language model."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.programs import whole


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
