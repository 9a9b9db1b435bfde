"""targets-equal-inputs: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.batches import fed
from tests.checks.programs import Module, plain, twin, whole
from tests.checks.text.programs import trained
from tests.checks.texts import TEXT, Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("targets-equal-inputs")
def _(buggy):
    return plain(Tokens(), x=TEXT[:, :-1], y=TEXT[:, :-1] if buggy else TEXT[:, 1:], loss=per_token)


@pytest.mark.parametrize("inside", [True, False])
def test_targets_may_be_the_inputs_of_a_model_that_shifts_what_it_has_looked_up(inside):
    def forward(model, tokens):
        e = model.table(tokens)
        e = torch.cat([torch.zeros_like(e[:, :1]), e[:, :-1]], 1) if inside else e
        return model.out(model.rnn(e)[0])

    model = Module(
        forward,
        table=lambda: nn.Embedding(20, 8),
        rnn=lambda: nn.GRU(8, 16, batch_first=True),
        out=lambda: nn.Linear(16, 20),
    )
    texts = [(whole(20, 4, 12, seed=n),) for n in range(5)]
    found = fed(model, texts, lambda model, t: F.cross_entropy(model(t).flatten(0, 1), t.flatten()))
    assert found == ([] if inside else ["targets-equal-inputs"])


@pytest.mark.parametrize("first", [0, 1])
def test_scores_cut_at_the_same_end_as_their_targets_are_not_shifted(first):
    model = Tokens()

    def step(_):
        scores = model(TEXT)[:, first : first + TEXT.shape[1] - 1]
        return per_token(scores, TEXT[:, 1:])

    assert trained(model, step) == (["targets-equal-inputs"] if first else [])
