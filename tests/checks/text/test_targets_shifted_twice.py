"""targets-shifted-twice: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn

from tests.checks.programs import plain, twin, whole
from tests.checks.text.programs import trained
from tests.checks.texts import Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("targets-shifted-twice")
def _(buggy):
    text = whole(32, 4, 14)
    return plain(Tokens(), x=text[:, :12], y=text[:, 2:14] if buggy else text[:, 1:13], loss=per_token)


@pytest.mark.parametrize("shift", [1, 2])
def test_a_decoder_that_reads_one_column_at_a_time(shift):
    class Speller(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.cell, self.out = nn.Embedding(32, 8), nn.GRUCell(8, 8), nn.Linear(8, 32)

        def forward(self, start, letters):
            state, scores = start, []
            for column in letters.unbind(1):
                state = self.cell(self.embed(column), state)
                scores.append(self.out(state))
            return torch.stack(scores, 1)

    model, text = Speller(), 3 + whole(29, 4, 12)
    found = trained(model, lambda _: per_token(model(torch.zeros(4, 8), text[:, :10]), text[:, shift : shift + 10]))
    assert found == ([] if shift == 1 else ["targets-shifted-twice"])
