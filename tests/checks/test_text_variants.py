"""Masks, padding, ends and shifts of text, however a model is given it and wherever its mask is made."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.twins import Module, mlp, plain, sgd, whole
from tests.checks.twins.losses import TEXT, Tokens, per_token

pytestmark = pytest.mark.sweep

PAD, START, END = 0, 1, 2


def named(findings) -> list[str]:
    return [finding.check for finding in findings.findings]


def texts(lengths, *, seed=0, end=END) -> torch.Tensor:
    """Rows of so many tokens between a start and an end, padded to the longest."""
    rows = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in enumerate(lengths):
        rows[row, 0], rows[row, length + 1] = START, end
        rows[row, 1 : length + 1] = 3 + whole(29, length, seed=seed + row)
    return rows


def trained(model, step, *, steps=4) -> list[str]:
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(steps):
            optimizer.zero_grad()
            step(number).backward()
            optimizer.step()
    return named(seen.findings)


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


TRANSLATED = {
    "": [], "future": ["future-tokens-in-logits"], "turned": ["padding-in-attention"],
    "visible": ["padding-in-attention"], "unshifted": ["targets-equal-inputs"], "twice": ["targets-shifted-twice"],
    "counted": ["padding-in-loss"], "one end": ["end-token-ignored"],
}  # fmt: skip


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


GIVEN = {
    "right": (lambda real: real, []),
    "mirrored": (lambda real: real.flip(1), ["padding-in-attention"]),
    "of ones": (torch.ones_like, ["padding-in-attention"]),
    "none": (lambda real: None, ["padding-in-attention"]),
}


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


@pytest.mark.parametrize("turned", [False, True])
def test_a_turned_mask_of_a_model_that_reads_from_left_to_right(turned):
    tokens = texts([3, 5, 7, 8])
    mask = (tokens == PAD if turned else tokens != PAD).long()
    model = Module(lambda self, tokens, mask: self.body(tokens, attention_mask=mask), body=CausalUnderMask)

    def step(_):
        scores = model(tokens[:, :-1], mask[:, :-1])
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD)

    assert trained(model, step) == (["padding-in-attention"] if turned else [])


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


def by_hand(scores, wanted):
    return -scores.log_softmax(-1).gather(-1, wanted[..., None]).squeeze(-1)


BY_HAND = {
    "masked": (1, lambda loss, real: (loss * real).sum() / real.sum(), []),
    "padding counted": (1, lambda loss, real: loss.mean(), ["padding-in-loss"]),
    "unshifted": (0, lambda loss, real: (loss * real).sum() / real.sum(), ["targets-equal-inputs"]),
    "twice": (2, lambda loss, real: (loss * real).sum() / real.sum(), ["targets-shifted-twice"]),
}


@pytest.mark.parametrize("form", BY_HAND)
@pytest.mark.parametrize("loss", [by_hand, lambda s, y: F.cross_entropy(s.transpose(1, 2), y, reduction="none")])
def test_losses_that_are_masked_or_written_by_hand(form, loss):
    shift, reduced, expected = BY_HAND[form]
    tokens = texts([4, 6, 8, 9])
    given, wanted = tokens[:, : tokens.shape[1] - 2], tokens[:, shift : shift + tokens.shape[1] - 2]
    model = Tokens()
    assert trained(model, lambda _: reduced(loss(model(given), wanted), wanted != PAD)) == expected


@pytest.mark.parametrize("first", [0, 1])
def test_scores_cut_at_the_same_end_as_their_targets_are_not_shifted(first):
    model = Tokens()

    def step(_):
        scores = model(TEXT)[:, first : first + TEXT.shape[1] - 1]
        return per_token(scores, TEXT[:, 1:])

    assert trained(model, step) == (["targets-equal-inputs"] if first else [])


@pytest.mark.parametrize("end", [END, PAD])
def test_an_end_that_is_padding_is_missed_in_batches_padded_to_their_longest_text(end):
    batches = [
        texts(lengths, seed=10 * n, end=end) for n, lengths in enumerate([(3, 5, 7, 9), (2, 4, 8, 8), (3, 4, 5, 6)])
    ]
    model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32))

    def step(number):
        tokens = batches[number % 3]
        return F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], ignore_index=PAD)

    assert trained(model, step) == (["end-token-ignored"] if end == PAD else [])


@pytest.mark.parametrize("wide", [2, 4])
def test_wide_tokens_that_are_read_as_narrow_ones_from_anywhere(wide):
    stream = torch.zeros(400, dtype=torch.long)
    stream[::wide] = 1 + whole(30, 400 // wide)
    rows = torch.stack([stream[start : start + 17] for start in (0, 33, 70, 131)])
    assert named(plain(Tokens(), x=rows[:, :-1], y=rows[:, 1:], loss=per_token)) == ["interleaved-zero-tokens"]


POSITIONS = {
    "cast": (lambda t: t.to(torch.bfloat16), ["low-precision-positions"]),
    "met": (lambda t: t[:, None] * torch.ones(2, dtype=torch.bfloat16), ["low-precision-positions"]),
    "summed": (lambda t: torch.ones(len(t), dtype=torch.bfloat16).cumsum(0), ["low-precision-positions"]),
    "waves": (lambda t: (0.3 * t.float()).to(torch.bfloat16).sin(), ["low-precision-positions"]),
    "in any order": (lambda t: (t.flip(0)[::3].bfloat16()[:, None] * 0.01).float().cos(), ["low-precision-positions"]),
    "no angles": (lambda t: t.flip(0)[::3].bfloat16(), []),
    "table": (lambda t: (0.3 * t.float()).sin().to(torch.bfloat16), []),
    "few": (lambda t: t[:200].to(torch.bfloat16), []),
}


@pytest.mark.parametrize("form", POSITIONS)
def test_positions_that_become_half_precision(form):
    made, expected = POSITIONS[form]
    model = Module(lambda self, x: self.body(x + 1e-6 * made(torch.arange(400)).float().mean()), body=mlp)
    assert named(plain(model)) == expected


FILLS = {
    "cast": (lambda s, m: s.masked_fill(m, -1e9).half(), ["overflowing-mask-value"]),
    "added": (lambda s, m: s.half() + m.half() * -1e9, ["overflowing-mask-value"]),
    "chosen": (lambda s, m: torch.where(m, -1e9, s.half()), ["overflowing-mask-value"]),
    "lowest": (lambda s, m: s.half().masked_fill(m, torch.finfo(torch.float16).min), []),
}


@pytest.mark.parametrize("form", FILLS)
def test_values_that_half_precision_does_not_hold(form):
    filled, expected = FILLS[form]

    def forward(self, x):
        mask = torch.zeros(len(x), len(x)).fill_diagonal_(1).bool()
        weights = filled(torch.zeros(len(x), len(x)), mask).float().softmax(-1)
        return self.body(x) + 0 * weights.sum()

    assert named(plain(Module(forward, body=mlp))) == expected


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
