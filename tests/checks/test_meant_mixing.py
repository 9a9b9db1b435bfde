"""Models that look over their batch on purpose, rows that are no samples, texts that look leaked, and their twins."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.test_variants import named
from tests.checks.twins import Module, numbers, sgd, whole

pytestmark = pytest.mark.sweep

MIXED = ["samples-mixed-in-batch"]


def fed(model, batches, loss, *, lr=0.05) -> list[str]:
    """What is found in a training on these batches."""
    optimizer = sgd(model, lr=lr)
    with surefoot.watch(model, optimizer) as seen:
        for batch in batches:
            optimizer.zero_grad()
            loss(model, *batch).backward()
            optimizer.step()
    ours = ("samples-mixed", "future", "targets", "input-ignored", "attention-across", "far-off", "softmax", "wrapped")
    return [each for each in named(seen.findings) if each.startswith(ours)]


def drawn(*arrays, size=8):
    """Batches of samples that a loader draws."""
    return [tuple(each) for each in DataLoader(TensorDataset(*arrays), size, shuffle=True, drop_last=True)]


def classified(model, x, y):
    return F.cross_entropy(model(x), y)


def of_loader(model, *arrays, loss=classified, size=8) -> list[str]:
    """The same, of batches that come from a loader while it is watched."""
    optimizer = sgd(model, lr=0.05)
    with surefoot.watch(model, optimizer) as seen:
        for batch in DataLoader(TensorDataset(*arrays), size, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            loss(model, *batch).backward()
            optimizer.step()
    ours = ("samples-mixed", "future", "targets", "input-ignored", "attention-across", "far-off", "softmax")
    return [each for each in named(seen.findings) if each.startswith(ours)]


X, Y = numbers(64, 6), whole(3, 64)


class Compared(nn.Module):
    """Scores of all pictures of a batch with all its texts, both ways."""

    def __init__(self, *, mixed=False):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.mixed = nn.Linear(6, 8), nn.Linear(5, 8), mixed

    def forward(self, one, two):
        a, b = F.normalize(self.one(one), dim=1), F.normalize(self.two(two), dim=1)
        a = a - a.roll(1, 0) if self.mixed else a
        scores = 14 * a @ b.t()
        return scores, scores.t()


def matched(model, one, two):
    rows, columns = model(one, two)
    return F.cross_entropy(rows, torch.arange(len(one))) + F.cross_entropy(columns, torch.arange(len(one)))


@pytest.mark.parametrize("mixed", [False, True])
def test_each_sample_may_be_compared_with_each(mixed):
    found = of_loader(Compared(mixed=mixed), X, numbers(64, 5, seed=1), loss=matched)
    assert found == (MIXED if mixed else [])


def test_batch_norm_may_have_no_running_statistics():
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    assert of_loader(nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 3)), X, Y) == []


def centred(model, x):
    return (model.net(x) - model.net(x).mean(0)) * 2


def whitened(model, x):
    z = model(x)
    return (z.t() @ z / len(z) - torch.eye(3)).square().sum()


def test_statistics_of_a_batch_are_a_fault_of_samples_with_targets():
    def model():
        return Module(centred, net=lambda: nn.Linear(6, 3))

    assert of_loader(model(), X, loss=whitened) == []
    assert of_loader(model(), X, Y) == MIXED
    assert of_loader(model(), X, X[:, :3] * 2, loss=lambda model, x, y: ((model(x) - y) ** 2).mean()) == MIXED
    assert fed(model(), [(numbers(5, 6, seed=n), whole(3, 5, seed=n)) for n in range(6)], classified) == []


@pytest.mark.parametrize("queries", [True, False])
def test_outputs_may_depend_on_all_of_a_context(queries):
    def compare(model, support, query):
        z = model.net(support).view(2, -1, 4).mean(1)
        return -torch.cdist(model.net(query if queries else query + support.roll(1, 0)), z)

    rounds = [(numbers(8, 6, seed=n), numbers(8, 6, seed=n + 50), whole(2, 8, seed=n)) for n in range(6)]
    model = Module(compare, net=lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)))
    assert fed(model, rounds, lambda model, s, q, y: F.cross_entropy(model(s, q), y)) == []


def steps(model, x):
    return model.out(model.rnn(x[:, None])[0][:, 0])


def recurrent():
    return Module(steps, rnn=lambda: nn.GRU(6, 8), out=lambda: nn.Linear(8, 3))


def test_rows_may_be_the_steps_of_one_sequence():
    assert fed(recurrent(), list(zip(X.split(8), Y.split(8), strict=True)), classified) == []
    assert of_loader(recurrent(), X, Y) == MIXED


def test_words_of_one_sentence_may_be_given_at_a_time():
    def tag(model, words):
        return model.out(model.rnn(model.table(words).view(len(words), 1, -1))[0].view(len(words), -1))

    model = Module(tag, table=lambda: nn.Embedding(20, 6), rnn=lambda: nn.LSTM(6, 8), out=lambda: nn.Linear(8, 3))
    sentences = [(whole(20, 5 + n, seed=n), whole(3, 5 + n, seed=n + 9)) for n in range(6)]
    assert fed(model, sentences, classified) == []


@pytest.mark.parametrize("held", ["buffer", "ends"])
def test_a_graph_may_be_held_by_the_model_or_given_as_two_lists_of_ends(held):
    near = (numbers(9, 9) > 0).float()
    ends = near.nonzero().unbind(1)

    def spread(model, x, *ends):
        h = model.one(x)
        mixed = model.near @ h if held == "buffer" else torch.zeros_like(h).index_add(0, ends[0], h[ends[1]])
        return model.two(torch.relu(mixed))

    model = Module(spread, one=lambda: nn.Linear(6, 8), two=lambda: nn.Linear(8, 3))
    if held == "buffer":
        model.register_buffer("near", near)
    given = () if held == "buffer" else ends
    batches = [(X[:9] + n, Y[:9]) for n in range(5)]
    assert fed(model, batches, lambda model, x, y: F.cross_entropy(model(x, *given), y)) == []


class Crowded(nn.Module):
    """Experts that take the surest few samples of a batch; the rest go by."""

    def __init__(self, *, leaks=False):
        super().__init__()
        torch.manual_seed(0)
        self.router, self.head, self.leaks = nn.Linear(6, 2), nn.Linear(6, 3), leaks
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x):
        chances = self.router(x).softmax(-1)
        weight, chosen = chances.max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = torch.where(chosen == number)[0]
            rows = rows[weight[rows].argsort(descending=True)[:1]]
            share = weight.softmax(0) if self.leaks else weight
            out = out.index_add(0, rows, share[rows, None] * expert(x[rows]))
        return self.head(x + out)


@pytest.mark.parametrize("leaks", [False, True])
def test_experts_may_have_room_for_a_few_samples(leaks):
    assert of_loader(Crowded(leaks=leaks), X, Y) == (["softmax-over-wrong-dimension"] if leaks else [])


def test_as_many_steps_as_samples_are_no_samples():
    def last(model, x):
        return model.out(model.rnn(x)[0][-1])

    def model():
        return Module(last, rnn=lambda: nn.GRU(4, 8), out=lambda: nn.Linear(8, 3))

    x = numbers(48, 8, 4)

    def turned(model, x, y):
        return F.cross_entropy(model(x.transpose(0, 1)), y)

    assert of_loader(model(), x, Y[:48], loss=turned) == []


def test_attention_may_run_over_samples_in_one_row():
    def forward(model, x):
        h = model.one(x)[None] if model.on_purpose else model.one(x)[:, None]
        return model.two((h + model.rows(h, h, h, need_weights=False)[0]).view(len(x), -1))

    def model(on_purpose):
        rows = nn.MultiheadAttention(8, 2, batch_first=on_purpose)
        made = Module(forward, one=lambda: nn.Linear(6, 8), rows=rows, two=lambda: nn.Linear(8, 3))
        made.on_purpose = on_purpose
        return made

    assert of_loader(model(True), X, Y) == []
    assert of_loader(model(False), X, Y) == MIXED


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


def hidden_words(model, tokens):
    masked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(3)) < 0.2
    logits = model(tokens.masked_fill(masked, 0))
    return F.cross_entropy(logits[masked], tokens[masked])


def as_targets(model, tokens):
    masked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(3)) < 0.2
    logits = model(tokens.masked_fill(masked, 0))
    return F.cross_entropy(logits.flatten(0, 1), tokens.masked_fill(~masked, -100).flatten())


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


@pytest.mark.parametrize("narrow", [True, False])
def test_tokens_that_were_cut_off_on_their_way(narrow):
    words = np.random.default_rng(0).integers(0, 700, 640)
    text = torch.from_numpy((words.astype(np.uint8) if narrow else words.astype(np.uint16)).astype(np.int64))
    model = nn.Sequential(nn.Embedding(700, 8), nn.Flatten(), nn.Linear(32, 3))
    batches = list(zip(text.view(-1, 8, 4), whole(3, 20, 8), strict=True))
    assert fed(model, batches, classified) == (["wrapped-token-ids"] if narrow else [])


@pytest.mark.parametrize("wide", [True, False])
def test_zeros_between_tokens_are_seen_in_front_of_padding(wide):
    def row(size, seed):
        tokens = 1 + whole(20, size, seed=seed).numpy()
        read = np.stack([tokens, 0 * tokens], 1).reshape(-1) if wide else np.concatenate([tokens, tokens])
        return np.pad(read, (0, 48 - len(read)))

    texts = [torch.from_numpy(np.stack([row(7 + n + each, each) for each in range(8)])) for n in range(5)]
    model = nn.Sequential(nn.Embedding(22, 8), nn.Flatten(), nn.Linear(384, 3))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for text in texts:
            optimizer.zero_grad()
            F.cross_entropy(model(text), Y[:8]).backward()
            optimizer.step()
    assert ("interleaved-zero-tokens" in named(seen.findings)) is wide
