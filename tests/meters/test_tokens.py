"""Tokens are counted at the model's door."""

import torch
from torch import nn

from surefoot.meters.books import Books


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)

    def forward(self, tokens, mask=None):
        return self.embed(tokens)


def count(model, call, unit: str = "tokens") -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Books(model) as books:
        call(model).sum().backward()
        optimizer.step()
    return books.steps[0].tally.total(unit)


def test_integers_are_tokens():
    assert count(Embedded(), lambda model: model(torch.zeros(3, 7, dtype=torch.long))) == 21


def test_keyword_arguments_are_seen():
    assert count(Embedded(), lambda model: model(tokens=torch.zeros(3, 7, dtype=torch.long))) == 21


def test_other_inputs_count_one_per_sample():
    assert count(nn.Linear(5, 1), lambda model: model(torch.ones(6, 5)), "samples") == 6


def test_evaluation_trains_nothing():
    def call(model):
        with torch.no_grad():
            model(torch.ones(100, 5))
        return model(torch.ones(6, 5))

    assert count(nn.Linear(5, 1), call, "samples") == 6
