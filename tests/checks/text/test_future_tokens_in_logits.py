"""future-tokens-in-logits: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.batches import fed
from tests.checks.programs import Module, plain, twin, whole
from tests.checks.texts import TEXT, Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("future-tokens-in-logits")
def _(buggy):
    return plain(Tokens(torch.ones_like if buggy else torch.tril), x=TEXT[:, :-1], y=TEXT[:, 1:], loss=per_token)


class Both(nn.Module):
    """Reads from left to right and from right to left, and says the next token and the one before."""

    def __init__(self, *, leak=False):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.leak = nn.Embedding(20, 8), leak
        self.right, self.left = (nn.GRU(8, 16, batch_first=True) for _ in range(2))
        self.out = nn.Linear(16, 20)

    def forward(self, tokens):
        e = self.table(tokens)
        right, left = self.right(e)[0], self.left(e.flip(1))[0].flip(1)
        return self.out(right + left if self.leak else right), self.out(left)


def said_both_ways(model, tokens):
    right, left = model(tokens)
    after = F.cross_entropy(right[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    return after + F.cross_entropy(left[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())


@pytest.mark.parametrize("leak", [False, True])
def test_a_model_may_read_both_ways_apart(leak):
    texts = [(whole(20, 4, 12, seed=n),) for n in range(5)]
    assert fed(Both(leak=leak), texts, said_both_ways) == (["future-tokens-in-logits"] if leak else [])


def as_targets(model, tokens):
    masked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(3)) < 0.2
    logits = model(tokens.masked_fill(masked, 0))
    return F.cross_entropy(logits.flatten(0, 1), tokens.masked_fill(~masked, -100).flatten())


def hidden_words(model, tokens):
    masked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(3)) < 0.2
    logits = model(tokens.masked_fill(masked, 0))
    return F.cross_entropy(logits[masked], tokens[masked])


@pytest.mark.parametrize("loss", [hidden_words, as_targets])
def test_hidden_words_among_words_that_are_alike_are_not_the_next_ones(loss):
    def forward(model, tokens):
        return model.out(model.rnn(model.table(tokens))[0])

    model = Module(
        forward,
        table=lambda: nn.Embedding(9, 8),
        rnn=lambda: nn.GRU(8, 8, batch_first=True, bidirectional=True),
        out=lambda: nn.Linear(16, 9),
    )
    texts = [(1 + whole(8, 6, 2, seed=n).repeat_interleave(24, 1),) for n in range(5)]
    assert fed(model, texts, loss) == []
