"""softmax-over-wrong-dimension: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.batches import CLASSES, FEATURES, of_loader
from tests.checks.programs import Module, X, Y, mlp, named, numbers, plain, sgd, twin, whole

pytestmark = pytest.mark.sweep


@twin("softmax-over-wrong-dimension")
def _(buggy):
    model = Module(lambda self, x: self.end(self.score(x).softmax(0 if buggy else -1) * x),
                   score=lambda: nn.Linear(4, 4), end=lambda: nn.Linear(4, 2))  # fmt: skip
    return plain(model)


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
    assert of_loader(Crowded(leaks=leaks), FEATURES, CLASSES) == (["softmax-over-wrong-dimension"] if leaks else [])


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


class Graph(nn.Module):
    """Messages along edges, weighed by a softmax over those that end at the same node, or over all."""

    def __init__(self, *, over_all: bool):
        super().__init__()
        torch.manual_seed(0)
        self.over_all, self.score, self.end = over_all, nn.Linear(8, 1), nn.Linear(4, 2)

    def forward(self, x, edges):
        source, target = edges
        score = self.score(torch.cat([x[source], x[target]], 1))
        share = score.softmax(0) if self.over_all else score.exp() / score.exp().new_zeros(len(x), 1).index_add(
            0, target, score.exp()
        )[target]  # fmt: skip
        return self.end(torch.zeros_like(x).index_add(0, target, share * x[source]))


@pytest.mark.parametrize("over_all", [True, False])
def test_messages_that_share_one_softmax(over_all):
    edges = torch.stack([torch.arange(8).repeat(2), torch.cat([torch.arange(8).roll(1), torch.arange(8).roll(3)])])
    model = Graph(over_all=over_all)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X, edges), Y).backward()
            optimizer.step()
        assert named(seen.findings) == (["softmax-over-wrong-dimension"] if over_all else [])


@pytest.mark.parametrize(("dim", "wrong"), [(1, False), (None, True), (2, True)])
def test_a_softmax_that_pools_steps(dim, wrong):
    def forward(self, x):
        steps = x[:, :, None] * self.scale
        with_weights = (F.softmax(self.query(steps), dim=dim, _stacklevel=3) * steps).sum(1)
        return self.end(torch.cat([x, with_weights], 1))

    model = Module(forward, query=lambda: nn.Linear(8, 1), end=lambda: nn.Linear(12, 2))
    model.scale = nn.Parameter(numbers(4, 8))
    with pytest.warns(UserWarning, match="Implicit dimension") if dim is None else torch.enable_grad():
        assert named(plain(model)) == (["softmax-over-wrong-dimension"] if wrong else [])


@pytest.mark.parametrize("dim", [-1, 1])
def test_what_is_picked_from_a_softmax_is_picked_along_its_own_dimension(dim):
    chances = Module(lambda self, x: F.log_softmax(self.layer(x), dim=dim), layer=lambda: nn.Linear(4, 3))
    worth, taken = numbers(5, 8, seed=2), whole(3, 5, 8)

    def loss(h, _):
        return -(h.gather(2, taken.unsqueeze(2)).squeeze(2) * worth).mean()

    found = named(plain(chances, x=numbers(5, 8, 4), loss=loss))
    assert found == ([] if dim == -1 else ["softmax-over-wrong-dimension"])


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_log_softmax_over_the_samples_right_before_the_loss(loss):
    def over(dim):
        return named(plain(mlp(classes=3), y=whole(3, 8), loss=lambda h, y: loss(h.log_softmax(dim), y)))

    assert over(0) == ["softmax-over-wrong-dimension"]
    assert over(1) == []


def attended(dim):
    """Attention written by hand, with a softmax over one of (samples, heads, queries, keys)."""

    def forward(self, x):
        query, key, value = self.mix(x).view(8, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        weights = F.dropout((query @ key.mT / 2).softmax(dim), 0.1, self.training)
        return self.end((weights @ value).transpose(1, 2).flatten(2).mean(1))

    model = Module(forward, mix=lambda: nn.Linear(4, 24), end=lambda: nn.Linear(8, 2))
    return named(plain(model, x=numbers(8, 5, 4)))


@pytest.mark.parametrize(("dim", "wrong"), [(-1, False), (1, True), (-2, True), (0, True)])
def test_a_softmax_of_attention_over_heads_queries_or_samples(dim, wrong):
    assert attended(dim) == (["softmax-over-wrong-dimension"] if wrong else [])


def test_assignments_to_clusters_are_shared_out_over_clusters_and_added_up_over_members():
    def forward(self, x):
        shares = (self.a(x) @ self.b(x).mT @ self.c(x)).softmax(-1)
        return self.end((shares.mT @ x).flatten(1))

    layers = {name: lambda: nn.Linear(4, 4) for name in "abc"}
    model = Module(forward, **layers, end=lambda: nn.Linear(16, 2))
    assert named(plain(model, x=numbers(8, 4, 4))) == []


@pytest.mark.parametrize("loss", ["kl_div", "cross_entropy"])
@pytest.mark.parametrize("dim", [0, 1])
def test_targets_of_a_softmax_over_the_samples(loss, dim):
    target = numbers(8, 2, seed=3).softmax(dim)
    losses = {"kl_div": lambda h, y: F.kl_div(h.log_softmax(1), y, reduction="batchmean"),
              "cross_entropy": F.cross_entropy}  # fmt: skip
    expected = ["softmax-over-wrong-dimension"] if dim == 0 else []
    assert named(plain(mlp(), y=target, loss=losses[loss])) == expected
