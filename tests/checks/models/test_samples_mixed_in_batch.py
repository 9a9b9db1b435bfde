"""samples-mixed-in-batch: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.batches import CLASSES, FEATURES, classified, fed, of_loader
from tests.checks.programs import Module, named, numbers, plain, sgd, twin, whole
from tests.checks.texts import TEXT

pytestmark = pytest.mark.sweep


@twin("samples-mixed-in-batch")
def _(buggy):
    model = Module(lambda self, x: self.end(self.lstm(x)[0][:, -1]),
                   lstm=lambda: nn.LSTM(4, 8, batch_first=not buggy), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model, x=numbers(8, 5, 4))


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


MIXED = ["samples-mixed-in-batch"]


def matched(model, one, two):
    rows, columns = model(one, two)
    return F.cross_entropy(rows, torch.arange(len(one))) + F.cross_entropy(columns, torch.arange(len(one)))


@pytest.mark.parametrize("mixed", [False, True])
def test_each_sample_may_be_compared_with_each(mixed):
    found = of_loader(Compared(mixed=mixed), FEATURES, numbers(64, 5, seed=1), loss=matched)
    assert found == (MIXED if mixed else [])


def test_batch_norm_may_have_no_running_statistics():
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    assert of_loader(nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 3)), FEATURES, CLASSES) == []


def centred(model, x):
    return (model.net(x) - model.net(x).mean(0)) * 2


def whitened(model, x):
    z = model(x)
    return (z.t() @ z / len(z) - torch.eye(3)).square().sum()


def test_statistics_of_a_batch_are_a_fault_of_samples_with_targets():
    def model():
        return Module(centred, net=lambda: nn.Linear(6, 3))

    assert of_loader(model(), FEATURES, loss=whitened) == []
    assert of_loader(model(), FEATURES, CLASSES) == MIXED
    assert (
        of_loader(model(), FEATURES, FEATURES[:, :3] * 2, loss=lambda model, x, y: ((model(x) - y) ** 2).mean())
        == MIXED
    )
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
    assert fed(recurrent(), list(zip(FEATURES.split(8), CLASSES.split(8), strict=True)), classified) == []
    assert of_loader(recurrent(), FEATURES, CLASSES) == MIXED


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
    batches = [(FEATURES[:9] + n, CLASSES[:9]) for n in range(5)]
    assert fed(model, batches, lambda model, x, y: F.cross_entropy(model(x, *given), y)) == []


def test_as_many_steps_as_samples_are_no_samples():
    def last(model, x):
        return model.out(model.rnn(x)[0][-1])

    def model():
        return Module(last, rnn=lambda: nn.GRU(4, 8), out=lambda: nn.Linear(8, 3))

    x = numbers(48, 8, 4)

    def turned(model, x, y):
        return F.cross_entropy(model(x.transpose(0, 1)), y)

    assert of_loader(model(), x, CLASSES[:48], loss=turned) == []


def test_attention_may_run_over_samples_in_one_row():
    def forward(model, x):
        h = model.one(x)[None] if model.on_purpose else model.one(x)[:, None]
        return model.two((h + model.rows(h, h, h, need_weights=False)[0]).view(len(x), -1))

    def model(on_purpose):
        rows = nn.MultiheadAttention(8, 2, batch_first=on_purpose)
        made = Module(forward, one=lambda: nn.Linear(6, 8), rows=rows, two=lambda: nn.Linear(8, 3))
        made.on_purpose = on_purpose
        return made

    assert of_loader(model(True), FEATURES, CLASSES) == []
    assert of_loader(model(False), FEATURES, CLASSES) == MIXED


def test_attention_over_samples_that_no_output_shows():
    def forward(self, x):
        h = torch.cat([self.token.expand(len(x), 1, 8), self.embed(x[..., None])], 1)
        return self.end((h + self.attend(h, h, h)[0])[:, 0])

    def model(batch_first):
        return Module(
            forward,
            token=nn.Parameter(torch.zeros(1, 1, 8)),
            embed=lambda: nn.Linear(1, 8),
            attend=lambda: nn.MultiheadAttention(8, 2, batch_first=batch_first),
            end=lambda: nn.Linear(8, 2),
        )

    assert named(plain(model(True))) == []
    assert named(plain(model(False))) == ["samples-mixed-in-batch"]


def test_pictures_of_a_batch_that_are_mixed_on_the_way():
    def model(mixed):
        def forward(self, x):
            h = self.look(x)
            h = h.permute(1, 2, 3, 0).reshape(len(x), -1) if mixed else h.flatten(1)
            return self.end(h.relu()).view_as(x)

        return Module(forward, look=lambda: nn.Conv2d(1, 6, 3, padding=1), end=lambda: nn.Linear(96, 16))

    pictures = numbers(6, 1, 4, 4)
    assert named(plain(model(False), x=pictures, y=pictures, loss=F.mse_loss)) == []
    assert named(plain(model(True), x=pictures, y=pictures, loss=F.mse_loss)) == ["samples-mixed-in-batch"]


@pytest.mark.parametrize("batch_first", [True, False])
def test_steps_that_follow_upon_each_other_tell_which_dimension_is_time(batch_first):
    waves = torch.sin(numbers(6, 1, 1) * 9 + torch.arange(21)[None, :, None] / 5 + torch.arange(3))
    model = Module(
        lambda self, x: self.end(self.rnn(x)[0]),
        rnn=lambda: nn.GRU(3, 8, batch_first=batch_first),
        end=lambda: nn.Linear(8, 1),
    )
    findings = named(plain(model, loss=F.mse_loss, x=waves[:, :-1], y=waves[:, 1:, :1]))
    assert findings == ([] if batch_first else ["samples-mixed-in-batch"])


@pytest.mark.parametrize("batch_first", [True, False])
def test_samples_that_are_mixed_by_little(batch_first):
    def forward(self, x):
        h = self.begin(x)
        return self.end(h + 1e-3 * self.mix(h, h, h, need_weights=False)[0]).mean(1)

    model = Module(
        forward, begin=lambda: nn.Linear(3, 8), end=lambda: nn.Linear(8, 2),
        mix=lambda: nn.MultiheadAttention(8, 2, batch_first=batch_first),
    )  # fmt: skip
    findings = named(plain(model, x=numbers(8, 5, 3)))
    assert findings == ([] if batch_first else ["samples-mixed-in-batch"])


@pytest.mark.parametrize("first", [True, False])
def test_lengths_tell_which_dimension_holds_the_samples(first):
    def forward(self, tokens, lengths):
        return self.end(self.lstm(self.embed(tokens))[0])

    model = Module(forward, embed=lambda: nn.Embedding(32, 4), lstm=lambda: nn.LSTM(4, 8, batch_first=first),
                   end=lambda: nn.Linear(8, 3))  # fmt: skip
    optimizer, tags = sgd(model), whole(3, 4, 12)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            scores = model(TEXT[:, :12], torch.tensor([12, 11, 10, 9]))
            F.cross_entropy(scores.flatten(0, 1), tags.flatten()).backward()
            optimizer.step()
    assert named(seen.findings) == ([] if first else ["samples-mixed-in-batch"])


class Adapted(nn.Module):
    """A layer with a low-rank adapter, which may centre its numbers over the batch."""

    def __init__(self, *, mixed):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.base, self.end = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)
        self.requires_grad_(False)
        self.down, self.up, self.mixed = nn.Parameter(numbers(4, 16)), nn.Parameter(torch.zeros(16, 4)), mixed

    def forward(self, tokens):
        x = self.embed(tokens)
        low = x @ self.down.T
        low = low - low.mean(0, keepdim=True) if self.mixed else low
        return self.end(torch.tanh(self.base(x) + low @ self.up.T))


@pytest.mark.parametrize("mixed", [True, False])
def test_an_adapter_that_mixes_texts_of_which_the_source_is_not_known(mixed):
    model, texts = Adapted(mixed=mixed), whole(20, 64, 9)
    optimizer = torch.optim.Adam([model.down, model.up], lr=1e-3)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(6):
            batch = texts[torch.randperm(64, generator=torch.Generator().manual_seed(step))[:16]]
            optimizer.zero_grad()
            F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
            optimizer.step()
    assert named(seen.findings) == (MIXED if mixed else [])
