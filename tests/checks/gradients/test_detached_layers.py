"""detached-layers: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal

import surefoot
from tests.checks.programs import Module, X, Y, looped, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("detached-layers")
def _(buggy):
    model = Module(lambda self, x: self.end(self.body(x).relu().detach() if buggy else self.body(x).relu()),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model)


@pytest.mark.parametrize("cut", [True, False])
def test_gradients_asked_of_autograd_and_handed_on_by_hand(cut):
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.below, self.above = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            below = self.below(x).relu()
            return self.above(below.detach() if cut else below)

    def body(model, optimizer):
        loss = F.cross_entropy(model(X), Y)
        parameters = list(model.parameters())
        for each, grad in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
            each.grad = grad
        optimizer.step()

    assert looped(body, model=Cut()) == (["detached-layers"] if cut else [])


class Drawing(nn.Module):
    """An encoder, a draw, a decoder."""

    def __init__(self, draw):
        super().__init__()
        self.encoder, self.decoder, self.draw = nn.Linear(4, 6), nn.Linear(3, 4), draw

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, 1)
        posterior = Independent(Normal(mean, F.softplus(spread) + 0.1), 1)
        return self.decoder(torch.tanh(self.draw(posterior))), posterior


@pytest.mark.parametrize("draw", ["rsample", "sample"])
@pytest.mark.parametrize("scored", [True, False])
def test_what_a_decoder_is_given_is_drawn_with_its_gradient(draw, scored):
    drawn = []

    def take(posterior):
        drawn[:] = [getattr(posterior, draw)()]
        return drawn[-1]

    def step(model, optimizer):
        optimizer.zero_grad()
        rebuilt, posterior = model(X)
        error = (rebuilt - X).square().sum(1)
        size = 0.1 * posterior.base_dist.loc.square().mean()
        loss = error.mean() + size
        if scored:
            loss = loss + (posterior.log_prob(drawn[-1].detach()) * error.detach()).mean()
        loss.backward()
        optimizer.step()

    found = looped(step, model=Drawing(take))
    assert found == (["detached-layers"] if draw == "sample" and not scored else [])


class Featured(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = mlp(classes=4), nn.Linear(4, 2)

    def forward(self, x):
        with torch.no_grad():
            features = self.body(x)
        return self.head(features)


@pytest.mark.parametrize("resting", [True, False])
def test_a_body_in_evaluation_mode_only_gives_features(resting):
    model = Featured()
    model.body.train(not resting)
    assert named(plain(model)) == ([] if resting else ["detached-layers"])


class Halves(nn.Module):
    """Two layers, of which the first may run without gradients."""

    def __init__(self, graded=False):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.graded = nn.Linear(4, 8), nn.Linear(8, 2), graded

    def forward(self, x):
        with torch.set_grad_enabled(self.graded):
            h = self.body(x).relu()
        return self.head(h)


def test_layers_that_run_without_gradients_inside_a_forward():
    assert named(plain(Halves())) == ["detached-layers"]
    assert named(plain(Halves(graded=True))) == []
    frozen = Halves()
    frozen.body.requires_grad_(False)
    assert named(plain(frozen)) == []


def test_layers_that_are_moved_by_hand_need_no_gradient():
    model = Halves()

    def follow(_):
        with torch.no_grad():
            model.body.weight.mul_(0.9)
            model.body.bias.add_(0.1)

    assert named(plain(model, after=follow)) == []


@pytest.mark.parametrize("cut", [True, False])
def test_a_graph_cut_between_two_models(cut):
    body, head = mlp(classes=4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    with surefoot.watch() as seen:
        for step in range(3):
            optimizer.zero_grad()
            h = body(X + step)
            F.cross_entropy(head(h.detach() if cut else h), Y).backward()
            optimizer.step()
    assert named(seen.findings) == (["detached-layers"] if cut else [])


@pytest.mark.parametrize("cut", [True, False])
def test_a_penalty_on_weights_teaches_them_nothing(cut):
    def forward(self, x):
        h = self.body(x).relu()
        return self.end(h.detach() if cut else h)

    model = Module(forward, body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))

    def loss(logits, y):
        return F.cross_entropy(logits, y) + 0.01 * sum(p.pow(2).sum() for p in model.parameters())

    assert named(plain(model, loss=loss)) == (["detached-layers"] if cut else [])


def test_a_model_that_was_frozen_after_its_training_was_cut_all_the_same():
    body, head = nn.Linear(4, 8), nn.Linear(8, 2)
    model = Module(lambda self, x: self.head(self.body(x).relu().detach()), body=body, head=head)
    assert named(plain(model, after=lambda step: model.requires_grad_(step < 3))) == ["detached-layers"]
