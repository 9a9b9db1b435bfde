"""padding-in-attention: the buggy and the fixed program, variants, and what looks like it and is fine."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import Module, Y, named, numbers, plain, sgd, twin, whole
from tests.checks.text.programs import END, PAD, texts, trained
from tests.checks.texts import TEXT, Tokens

pytestmark = pytest.mark.sweep


@twin("padding-in-attention")
def _(buggy):
    mask = torch.ones(4, 12, dtype=torch.long)
    for row, length in enumerate((4, 6, 9, 12)):
        mask[row, length:] = 0
    model = Tokens(torch.ones_like)
    optimizer = sgd(model)
    keep = model.forward
    if buggy:
        model.forward = lambda tokens, attention_mask: keep(tokens)
        model = Module(lambda self, tokens, attention_mask: self.inner(tokens), inner=lambda: Tokens(torch.ones_like))
        optimizer = sgd(model)
    targets = whole(32, 4)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            h = model(TEXT[:, :12], attention_mask=mask)
            F.cross_entropy(h.mean(1), targets).backward()
            optimizer.step()
    return seen.findings


class Pooled(nn.Module):
    """Attention over steps, by methods and not by its forward."""

    def __init__(self, weigh):
        super().__init__()
        torch.manual_seed(0)
        self.score, self.head, self.weigh = nn.Linear(5, 1), nn.Linear(5, 3), weigh

    def classes(self, x, real):
        weight = self.weigh(self.score(x)[..., 0], real)
        return self.head((weight[..., None] * x).sum(1))


SEQUENCES, CLASSES, LENGTHS = numbers(16, 7, 5), whole(3, 16), 2 + whole(6, 16)
REAL = torch.arange(7) < LENGTHS[:, None]


def at_random(scores, real):
    kept = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    return (scores * kept).softmax(1)


def filled(scores, real):
    return scores.masked_fill(~real, float("-inf")).softmax(1)


def filled_low(scores, real):
    return scores.masked_fill(~real, -1e4).softmax(1)


def filled_with_nearly_nothing(scores, real):
    return scores.masked_fill(~real, 1e-9).softmax(1)


def multiplied(scores, real):
    return (scores * real).softmax(1)


def multiplied_again(scores, real):
    shares = F.softmax(scores * real, dim=1) * real
    return shares / shares.sum(1, keepdim=True)


def multiplied_as_numbers(scores, real):
    return F.softmax(real.float() * scores, dim=1)


def over_features(scores, real):
    return ((scores[..., None] * real[..., None]).expand(-1, -1, 3).softmax(-1)[..., 0] * real).cumsum(1)


@pytest.mark.parametrize(
    ("weigh", "named"),
    [
        (filled, False),
        (filled_low, False),
        (filled_with_nearly_nothing, True),
        (multiplied, True),
        (multiplied_as_numbers, True),
        (multiplied_again, False),
        (over_features, False),
        (at_random, False),
    ],
)
def test_scores_that_a_mask_of_padding_sets_to_zero(weigh, named):
    model = Pooled(weigh)
    optimizer = sgd(model, lr=0.05)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model.classes(SEQUENCES, REAL), CLASSES).backward()
            optimizer.step()
    found = [each.check for each in seen.findings.findings if each.check.startswith("padding")]
    assert found == (["padding-in-attention"] if named else [])


@pytest.mark.parametrize("masked", [True, False])
def test_packed_rows_whose_attention_counts_their_padding(masked):
    lengths = torch.tensor([9, 7, 6, 4, 3, 8])
    tokens = whole(11, 6, 9, seed=4) + 1
    padded = torch.arange(9) >= lengths[:, None]
    tokens = tokens.masked_fill(padded, 0)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        hidden = torch.arange(tokens.shape[1]) >= lengths[:, None]
        scores = self.query(states).squeeze(-1)
        scores = scores.masked_fill(hidden, -torch.inf) if masked else scores * ~hidden
        return self.end((scores.softmax(1)[:, :, None] * states).sum(1))

    model = Module(
        forward,
        table=lambda: nn.Embedding(12, 8, padding_idx=0), rnn=lambda: nn.GRU(8, 8, batch_first=True),
        query=lambda: nn.Linear(8, 1), end=lambda: nn.Linear(8, 2),
    )  # fmt: skip
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, lengths), torch.tensor([0, 1] * 3)).backward()
            optimizer.step()
        assert named(seen.findings) == ([] if masked else ["padding-in-attention"])


MASKS = {
    "minus infinity": (lambda scores, real: scores.masked_fill(~real, -math.inf), []),
    "a little": (lambda scores, real: scores.masked_fill(~real, -1.0), ["padding-in-attention"]),
    "times zero": (lambda scores, real: scores * real, ["padding-in-attention"]),
    "turned": (lambda scores, real: scores.masked_fill(real, -1e9), ["padding-in-attention"]),
}


@pytest.mark.parametrize("form", MASKS)
def test_a_mask_that_the_model_makes_from_its_tokens(form):
    masked, expected = MASKS[form]

    def forward(self, tokens):
        h = self.embed(tokens)
        weights = masked(self.ask(h).squeeze(-1), tokens != PAD).softmax(1)
        return self.end((weights[..., None] * h).sum(1))

    model = Module(forward, embed=lambda: nn.Embedding(32, 8), ask=lambda: nn.Linear(8, 1), end=lambda: nn.Linear(8, 2))
    assert named(plain(model, x=texts([3, 5, 7, 8]), y=torch.tensor([0, 1, 0, 1]))) == expected


@pytest.mark.parametrize("form", MASKS)
def test_steps_of_numbers_are_padded_too_and_a_recurrent_layer_may_read_it(form):
    masked, expected = MASKS[form]

    def forward(self, steps, lengths):
        states, _ = self.gru(steps)
        real = torch.arange(steps.shape[1]) < lengths[:, None]
        weights = masked(self.ask(states).squeeze(-1), real).softmax(1)
        return self.end((weights[..., None] * states).sum(1))

    model = Module(forward, gru=lambda: nn.GRU(3, 8, batch_first=True), ask=lambda: nn.Linear(8, 1),
                   end=lambda: nn.Linear(8, 2))  # fmt: skip
    lengths = torch.tensor([3, 5, 7, 9])
    steps = torch.randn(4, 9, 3) * (torch.arange(9) < lengths[:, None])[..., None]
    assert trained(model, lambda _: F.cross_entropy(model(steps, lengths), torch.tensor([0, 1, 0, 1]))) == expected


def test_a_sum_over_embeddings_of_zeros_needs_no_mask():
    def forward(self, tokens):
        return self.end(self.embed(tokens).sum(1) / (tokens != PAD).sum(1, keepdim=True))

    model = Module(forward, embed=lambda: nn.Embedding(32, 8, padding_idx=PAD), end=lambda: nn.Linear(8, 2))
    assert named(plain(model, x=texts([3, 5, 7, 8]), y=torch.tensor([0, 1, 0, 1]))) == []


class Encoder(nn.Module):
    """Looks at all that its mask, if it has one, calls real."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.end = nn.Embedding(32, 8, padding_idx=PAD), nn.Linear(8, 2)
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)

    def forward(self, tokens, attention_mask=None):
        hidden = None if attention_mask is None else attention_mask == 0
        return self.end(self.layer(self.embed(tokens), src_key_padding_mask=hidden)[:, 0])


GIVEN = {
    "right": (lambda real: real, []),
    "mirrored": (lambda real: real.flip(1), ["padding-in-attention"]),
    "of ones": (torch.ones_like, ["padding-in-attention"]),
    "none": (lambda real: None, ["padding-in-attention"]),
}


@pytest.mark.parametrize("form", GIVEN)
def test_a_mask_that_is_given(form):
    model = Encoder()
    tokens = texts([3, 5, 7, 8])
    mask, expected = GIVEN[form][0](tokens != PAD), GIVEN[form][1]

    def step(_):
        scores = model(tokens) if mask is None else model(tokens, attention_mask=mask.long())
        return F.cross_entropy(scores, torch.tensor([0, 1, 0, 1]))

    assert trained(model, step) == expected


@pytest.mark.parametrize("hidden", [False, True])
def test_a_mask_that_keeps_nothing_but_the_hidden_words(hidden):
    tokens = 3 + whole(28, 4, 12)
    tokens[:, [3, 7]] = END
    model = Encoder()
    mask = (tokens == END).long() if hidden else torch.ones_like(tokens)
    found = trained(model, lambda _: F.cross_entropy(model(tokens, mask), torch.tensor([0, 1, 0, 1])))
    assert found == (["padding-in-attention"] if hidden else [])


def test_rows_that_merely_end_alike_may_have_a_mask_of_ones():
    tokens = texts([3, 5, 7, 8])
    tokens = torch.where(tokens == PAD, 31, tokens)  # not what the table calls padding
    model = Encoder()
    mask = torch.ones_like(tokens)
    assert trained(model, lambda _: F.cross_entropy(model(tokens, mask), torch.tensor([0, 1, 0, 1]))) == []


class CausalUnderMask(nn.Module):
    """Attention to what came before and is not masked, as torch's own kernel computes it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix, self.head = nn.Embedding(32, 8), nn.Linear(8, 24), nn.Linear(8, 32)

    def forward(self, tokens, attention_mask):
        h = self.embed(tokens)
        query, key, value = self.mix(h).chunk(3, -1)
        seen = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril() & (attention_mask == 1)[:, None]
        return self.head(h + F.scaled_dot_product_attention(query, key, value, attn_mask=seen))


@pytest.mark.parametrize("turned", [False, True])
def test_a_turned_mask_of_a_model_that_reads_from_left_to_right(turned):
    tokens = texts([3, 5, 7, 8])
    mask = (tokens == PAD if turned else tokens != PAD).long()
    model = Module(lambda self, tokens, mask: self.body(tokens, attention_mask=mask), body=CausalUnderMask)

    def step(_):
        scores = model(tokens[:, :-1], mask[:, :-1])
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD)

    assert trained(model, step) == (["padding-in-attention"] if turned else [])


def masked(keep) -> list[str]:
    """A model that honours its mask and gives one answer per sample, with a mask as `keep` makes it."""

    def forward(self, tokens, attention_mask):
        h = self.embed(tokens)
        scores = (h[:, :1] @ h.transpose(1, 2)).masked_fill(attention_mask[:, None] == 0, -1e9)
        return self.end((scores.softmax(-1) @ h)[:, 0])

    torch.manual_seed(0)
    model = Module(forward, embed=lambda: nn.Embedding(32, 8), end=lambda: nn.Linear(8, 2))
    real = torch.arange(12) < torch.tensor([5, 7, 9, 11])[:, None]
    tokens = torch.where(real, TEXT[:, :12] % 30 + 2, 0)
    optimizer, targets = sgd(model), whole(2, 4)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, attention_mask=keep(real).long()), targets).backward()
            optimizer.step()
        return named(seen.findings)


def test_a_mask_that_keeps_the_padding_is_named():
    assert masked(lambda real: real) == []
    assert masked(lambda real: ~real) == ["padding-in-attention"]


@pytest.mark.parametrize("masked", [True, False])
def test_padding_is_seen_in_outputs_of_whole_samples_too(masked):
    def forward(self, tokens, attention_mask):
        hidden = self.layer(self.embed(tokens), src_key_padding_mask=attention_mask == 0 if masked else None)
        real = attention_mask[:, :, None].float()
        return self.end((hidden * real).sum(1) / real.sum(1))

    layer = lambda: nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)  # noqa: E731
    model = Module(forward, embed=lambda: nn.Embedding(32, 8), layer=layer, end=lambda: nn.Linear(8, 2))
    optimizer, lengths = sgd(model), torch.tensor([4, 6, 9, 12])
    mask = (torch.arange(12) < lengths[:, None]).long()
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(TEXT[:, :12], attention_mask=mask), Y[:4]).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if masked else ["padding-in-attention"])


@pytest.mark.parametrize("attends", [True, False])
def test_without_attention_padding_is_no_matter_of_attention(attends):
    """A cell written by hand, that goes on over the padding, and attention over the same steps."""

    def forward(self, tokens, attention_mask):
        seen = self.embed(tokens)
        state = torch.zeros(len(tokens), 8)
        for step in seen.unbind(1):
            state = (0.5 * state + self.inner(step)).tanh()
        if attends:
            state = ((state[:, None] @ seen.transpose(1, 2)).softmax(-1) @ seen)[:, 0]
        return self.end(state) + 0 * attention_mask.sum()

    torch.manual_seed(0)
    layers = {"embed": lambda: nn.Embedding(32, 8), "inner": lambda: nn.Linear(8, 8), "end": lambda: nn.Linear(8, 2)}
    model, optimizer = (made := Module(forward, **layers)), sgd(made)
    real = torch.arange(12) < torch.tensor([5, 7, 9, 11])[:, None]
    tokens = torch.where(real, TEXT[:, :12] % 30 + 2, 0)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, attention_mask=real.long()), whole(2, 4)).backward()
            optimizer.step()
    assert ("padding-in-attention" in named(seen.findings)) == attends
