"""attention-across-documents: the buggy and the fixed program, variants, and what looks like it and is fine."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.batches import fed
from tests.checks.programs import named, on_batches, plain, sgd, twin, whole
from tests.checks.text.programs import START
from tests.checks.texts import TEXT, Tokens, per_token

pytestmark = pytest.mark.sweep


@twin("attention-across-documents")
def _(buggy):
    class Packed(Tokens):
        def forward(self, tokens, position_ids):
            documents = (position_ids == 0).cumsum(1)
            same = documents[:, :, None] == documents[:, None, :]
            query, key, value = self.mix(self.embed(tokens)).chunk(3, -1)
            scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
            allowed = torch.ones_like(scores).tril().bool() & (same | buggy)
            return self.head(scores.masked_fill(~allowed, -1e9).softmax(-1) @ value + value)

    positions = torch.cat([torch.arange(5), torch.arange(7)]).expand(4, -1)
    model = Packed()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            per_token(model(TEXT[:, :12], positions), TEXT[:, 1:13]).backward()
            optimizer.step()
    return seen.findings


@pytest.mark.parametrize("runs_on", [True, False])
def test_documents_whose_positions_run_on_are_parts_of_one_text(runs_on):
    class Packed(Tokens):
        def forward(self, tokens, documents, positions):
            del documents, positions
            return super().forward(tokens)

    model = Packed()
    optimizer = sgd(model)
    begins = torch.arange(12) if runs_on else torch.arange(12) % 4
    documents, positions = (torch.arange(12) // 4).expand(4, -1), begins.expand(4, -1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            per_token(model(TEXT[:, :12], documents, positions), TEXT[:, 1:13]).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if runs_on else ["attention-across-documents"])


@pytest.mark.parametrize(("padded", "expected"), [(True, []), (False, ["attention-across-documents"])])
def test_padding_whose_positions_are_zero_is_no_document(padded, expected):
    class Placed(Tokens):
        def forward(self, tokens, position_ids):
            return super().forward(tokens) + 0 * position_ids[..., None]

    model = Placed()
    positions = torch.cat([torch.arange(8), torch.zeros(4) if padded else torch.arange(4)]).long().expand(4, -1)
    tokens, targets = TEXT[:, :12].clone(), TEXT[:, 1:13].clone()
    if padded:
        tokens[:, 8:], targets[:, 7:] = 0, -100
    batches = [(tokens, targets)] * 3
    assert on_batches(model, lambda x, y: per_token(model(x, positions), y), batches) == expected


class Bars(nn.Module):
    """A causal model that is told the place of each token in its bar, and perhaps in the whole."""

    def __init__(self, *, whole_places):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.beat, self.place = nn.Embedding(20, 8), nn.Embedding(8, 8), nn.Embedding(16, 8)
        self.attention, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 20)
        self.whole_places = whole_places

    def forward(self, tokens, beats):
        h = self.table(tokens) + self.beat(beats)
        if self.whole_places:
            h = h + self.place(torch.arange(tokens.shape[1]))
        later = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
        return self.out(h + self.attention(h, h, h, attn_mask=later, need_weights=False)[0])


@pytest.mark.parametrize("whole_places", [True, False])
def test_places_in_bars_start_again_inside_of_one_text(whole_places):
    beats = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2]).expand(4, -1)
    texts = [(whole(20, 4, 13, seed=n),) for n in range(5)]

    def loss(model, tokens):
        return F.cross_entropy(model(tokens[:, :-1], beats).flatten(0, 1), tokens[:, 1:].flatten())

    found = fed(Bars(whole_places=whole_places), texts, loss)
    assert found == ([] if whole_places else ["attention-across-documents"])


@pytest.mark.parametrize("apart", [True, False])
def test_documents_that_the_model_numbers_itself(apart):
    class Packed(Tokens):
        def forward(self, tokens):
            documents = (tokens == START).cumsum(1)
            same = documents[:, :, None] == documents[:, None, :]
            query, key, value = self.mix(self.embed(tokens)).chunk(3, -1)
            scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
            allowed = torch.ones_like(scores).tril().bool() & (same | (not apart))
            return self.head(scores.masked_fill(~allowed, -1e9).softmax(-1) @ value + value)

    tokens = 3 + whole(29, 4, 17)
    tokens[:, [0, 5, 11]] = START
    found = plain(Packed(), x=tokens[:, :-1], y=tokens[:, 1:], loss=per_token)
    assert named(found) == ([] if apart else ["attention-across-documents"])
