"""Other forms of bugs in models than their twins have, each beside what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import surefoot
from tests.checks.twins import Module, X, mlp, numbers, plain, sgd, whole

pytestmark = pytest.mark.sweep


def named(findings) -> list[str]:
    return [finding.check for finding in findings.findings]


def two_layers(between, **layers):
    """A model with something of one's own between its first and its last layer."""

    def forward(self, x):
        return self.end(between(self, self.begin(x).relu()))

    return Module(forward, begin=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2), **layers)


class Holder:
    """A plain object that keeps a layer."""

    def __init__(self):
        self.layer = nn.Linear(8, 8)


def test_a_layer_that_runs_in_a_model_that_does_not_hold_it():
    held = two_layers(lambda self, h: self.middle(h).relu(), middle=lambda: nn.Linear(8, 8))
    assert named(plain(held)) == []
    hidden = two_layers(lambda self, h: self.holder.layer(h).relu())
    hidden.holder = Holder()
    assert named(plain(hidden)) == ["layers-in-plain-list"]
    nested = two_layers(lambda self, h: self.parts["a"][0](h).relu())
    nested.parts = {"a": [nn.Linear(8, 8)]}
    assert named(plain(nested)) == ["layers-in-plain-list"]


def test_a_tensor_of_nobody_that_is_never_moved():
    gain = torch.ones((), requires_grad=True)
    model = two_layers(lambda self, h: h * gain)
    assert named(plain(model)) == ["unregistered-parameter"]
    points = X.clone().requires_grad_()  # as of a differential equation: an input of the model
    assert [each.severity for each in plain(mlp(), x=points).findings] == ["info"]


def shared(make) -> list[str]:
    def forward(self, x):
        h = self.begin(x).relu()
        for layer in self.layers:
            h = h + layer(h).relu()
        return self.end(h)

    model = Module(forward, begin=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))
    model.layers = nn.ModuleList(make(nn.Linear(8, 8)) for _ in range(3)) if make else None
    return named(plain(model))


def test_a_layer_that_is_shared_inside_of_others():
    one = nn.Linear(8, 8)
    assert shared(lambda own: nn.Sequential(nn.LayerNorm(8), own)) == []
    assert shared(lambda own: nn.Sequential(nn.LayerNorm(8), one)) == ["repeated-layer-object"]
    assert shared(lambda own: copy.copy(one)) == ["repeated-layer-object"]


def zeros(*names: str) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for name in names:
        nn.init.zeros_(model.get_submodule(name).weight)
        nn.init.zeros_(model.get_submodule(name).bias)
    return named(plain(model, steps=6))


def test_layers_in_a_row_that_begin_as_zero_stay_so():
    assert zeros("4") == []
    assert zeros("2", "4") == ["symmetric-initial-weights"]


def test_weights_that_return_next_to_nothing():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, std=1e-6)
    assert "far-off-initial-loss" in named(plain(model))


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (lambda self, h: torch.rand_like(h) > 0.2, ["dropout-in-evaluation"]),
        (lambda self, h: torch.bernoulli(torch.full_like(h, 0.8)), ["dropout-in-evaluation"]),
        (lambda self, h: torch.rand_like(h) > 0.2 if self.training else 1.0, []),
        (lambda self, h: 1 + 0.1 * torch.randn_like(h), []),
    ],
)
def test_a_mask_by_hand(mask, expected):
    assert named(plain(two_layers(lambda self, h: h * mask(self, h)))) == expected


def attention(equation: str, dim: int) -> list[str]:
    def forward(self, x):
        h = self.embed(x[..., None])
        weights = torch.einsum("bqd,bkd->bqk", self.ask(h), self.answer(h)).softmax(dim)
        return self.end(torch.einsum(equation, weights, h).mean(1))

    layers = {name: lambda: nn.Linear(6, 6) for name in ("ask", "answer")}
    model = Module(forward, embed=lambda: nn.Linear(1, 6), end=lambda: nn.Linear(6, 2), **layers)
    return [name for name in named(plain(model)) if name != "linear-layers-in-a-row"]


def test_a_softmax_over_queries_in_an_einsum():
    assert attention("bqk,bkd->bqd", -1) == []
    assert attention("bkq,bkd->bqd", 1) == []
    assert attention("bqk,bkd->bqd", 1) == ["softmax-over-wrong-dimension"]


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


def trained_on_tokens(model) -> list[str]:
    return named(plain(model, x=whole(10, 8, 5), y=whole(10, 8, 5, seed=1), loss=_of_tokens))


def _of_tokens(out, y):
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


class Tied(nn.Module):
    """Tokens in, tokens out, by one matrix; `undo` takes it apart."""

    def __init__(self, undo=lambda self: None):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.middle, self.end = nn.Embedding(10, 6), nn.Linear(6, 6), nn.Linear(6, 10, bias=False)
        self.end.weight = self.embed.weight
        undo(self)

    def forward(self, tokens):
        return self.end(self.middle(self.embed(tokens)).relu())


def _draw_anew(self):
    self.end.weight = nn.Parameter(torch.randn(10, 6) * 0.3)


@pytest.mark.parametrize(("undo", "expected"), [(lambda self: None, []), (_draw_anew, ["untied-weights"])])
def test_a_tie_that_is_undone(undo, expected):
    tokens, following = whole(10, 8, 5), whole(10, 8, 5, seed=1)
    optimizer = None
    with surefoot.watch() as seen:
        model = Tied(undo)
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            _of_tokens(model(tokens), following).backward()
            optimizer.step()
        assert named(seen.findings) == expected


def test_a_copy_of_an_embedding_that_is_no_linear_layer():
    def model(copied):
        made = Module(
            lambda self, t: self.middle(self.embed(t)).relu() @ self.out,
            embed=lambda: nn.Embedding(10, 6),
            middle=lambda: nn.Linear(6, 6),
        )
        start = made.embed.weight.detach().t().clone() if copied else numbers(6, 10)
        made.out = nn.Parameter(start)
        return made

    assert trained_on_tokens(model(False)) == []
    assert trained_on_tokens(model(True)) == ["untied-weights"]


def test_a_block_that_writes_into_what_it_is_given():
    class Block(nn.Module):
        def __init__(self, inplace):
            super().__init__()
            self.layer, self.inplace = nn.Linear(8, 8), inplace

        def forward(self, h):
            return h + self.layer(F.relu(h - 0.1 if not self.inplace else h, inplace=True))

    def model(inplace):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), Block(inplace), nn.Linear(8, 2))

    assert "input-changed-in-place" not in named(plain(model(False)))
    assert "input-changed-in-place" in named(plain(model(True)))


def test_norms_that_run_in_a_frozen_part_without_gradients():
    def forward(self, x):
        with torch.no_grad():
            h = self.trunk(x)
        return self.end(h)

    def model(running):
        made = Module(
            forward,
            trunk=lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()),
            end=lambda: nn.Linear(8, 2),
        )
        made.trunk.requires_grad_(False).train(running)
        return made

    assert named(plain(model(False))) == []
    assert named(plain(model(True))) == ["running-frozen-batch-norm"]


def test_recomputation_that_draws_other_numbers_in_the_middle_of_a_module():
    drawn = torch.Generator().manual_seed(0)

    def model(generator):
        def block(self, x):
            h = self.begin(x).relu()
            mask = torch.rand(h.shape, generator=generator) if generator else torch.rand(h.shape)
            return self.middle(h * (0.5 + mask)).relu()

        return Module(
            lambda self, x: self.end(checkpoint(lambda given: block(self, given), x, use_reentrant=False)),
            begin=lambda: nn.Linear(4, 8),
            middle=lambda: nn.Linear(8, 8),
            end=lambda: nn.Linear(8, 2),
        )

    assert named(plain(model(None))) == []
    assert named(plain(model(drawn))) == ["recomputation-differs"]


def test_a_batch_that_is_turned_can_be_watched():
    model = mlp(inputs=8)
    assert named(plain(model, x=numbers(8, 4).t(), y=whole(2, 4))) == []


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
