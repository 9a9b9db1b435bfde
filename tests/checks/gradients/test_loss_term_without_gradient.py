"""loss-term-without-gradient: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.losses.programs import TEACHER, of_classes
from tests.checks.programs import Module, X, Y, mlp, named, on_steps, plain, sgd, twin

pytestmark = pytest.mark.sweep


@twin("loss-term-without-gradient")
def _(buggy):
    model = Module(lambda self, x: (self.end(self.body(x).relu()), self.back(self.body(x).relu())),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2), back=lambda: nn.Linear(8, 4))  # fmt: skip

    def loss(out, y):
        term = F.mse_loss(out[1], X)
        return F.cross_entropy(out[0], y) + (term.item() if buggy else term)

    return plain(model, loss=loss)


def test_a_term_that_is_rounded_has_no_gradient():
    def loss(out, y, rounded):
        found = out.softmax(1)[:, 1]
        return F.cross_entropy(out, y) + ((found.round() if rounded else found) - y).square().mean()

    assert of_classes(lambda out, y: loss(out, y, rounded=False)) == []
    assert of_classes(lambda out, y: loss(out, y, rounded=True)) == ["loss-term-without-gradient"]


@pytest.mark.parametrize("own", [True, False])
def test_what_a_reference_gives_is_a_constant(own):
    model = mlp()
    reference = model if own else copy.deepcopy(model)

    def loss(model, step):
        logs = model(X + step).log_softmax(-1)
        with torch.no_grad():
            shares = reference(X + step).softmax(-1)
            entropy = (shares * shares.log()).sum(-1)
        return (entropy + F.cross_entropy(logs, Y, reduction="none")).mean()

    assert ("loss-term-without-gradient" in on_steps(model, loss, steps=12)) is own


@pytest.mark.parametrize("cut", [True, False])
def test_a_term_of_each_sample_that_has_no_gradient(cut):
    def loss(out, y):
        spread = (out.detach() if cut else out).square().sum(1)
        return (F.cross_entropy(out, y, reduction="none") + 0.1 * spread).mean()

    assert named(plain(mlp(), loss=loss, steps=5)) == (["loss-term-without-gradient"] if cut else [])


def test_what_keeps_an_exponential_small_is_no_term():
    def loss(out, y):
        largest = out.detach().amax(1)
        everything = largest + (out - largest[:, None]).exp().sum(1).log()
        return (everything - out[torch.arange(8), y]).mean()

    assert named(plain(mlp(), loss=loss, steps=5)) == []


def test_a_number_that_hardly_changes_is_a_term_all_the_same():
    model = mlp()

    def loss(out, y):
        return F.cross_entropy(out, y) + 1e-3 * sum(each.square().sum() for each in model.parameters()).item()

    assert named(plain(model, loss=loss, optimizer=sgd(model, lr=1e-2), steps=5)) == ["loss-term-without-gradient"]


def penalty(logits):
    return 4 * F.kl_div(logits.log_softmax(-1), TEACHER, reduction="batchmean")


TERMS = {
    "a number": (lambda logits: penalty(logits).item(), True),
    "detached before": (lambda logits: penalty(logits.detach()), True),
    "detached behind": (lambda logits: torch.stack([penalty(logits)]).detach().sum(), True),
    "without gradients": (torch.no_grad()(penalty), True),
    "of hard choices": (lambda logits: ((logits > logits.mean()) * TEACHER).mean(), True),
    "a tensor": (penalty, False),
    "a constant": (lambda logits: float(penalty(logits).item() > 0), False),
    "of the targets": (lambda logits: torch.rand(8).mean(), False),
    "in the place of the value": (lambda logits: penalty(logits) - penalty(logits).detach(), False),
}


@pytest.mark.parametrize("form", TERMS)
def test_a_term_of_the_loss_that_has_no_gradient_is_found_in_any_form(form):
    term, lost = TERMS[form]
    found = named(plain(mlp(), steps=6, loss=lambda logits, y: F.cross_entropy(logits, y) + term(logits)))
    assert found == (["loss-term-without-gradient"] if lost else [])


def test_a_loop_without_backward_has_one_finding_with_the_right_remedy():
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y)
            optimizer.step()
    assert named(seen.findings) == ["update-without-gradients"]


@pytest.mark.parametrize("graph", [True, False])
def test_a_penalty_on_gradients_needs_their_graph(graph):
    def penalized(model, x):
        x = x.clone().requires_grad_(True)
        (slopes,) = torch.autograd.grad(model(x).sum(), x, create_graph=graph)
        return ((slopes.norm(dim=1) - 1) ** 2).mean()

    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(5):
            optimizer.zero_grad()
            (F.cross_entropy(model(X), Y) + penalized(model, X)).backward()
            optimizer.step()
    remedies = [each.remedy for each in seen.findings.findings if each.check == "loss-term-without-gradient"]
    assert len(remedies) == (not graph)
    assert all("create_graph=True" in remedy for remedy in remedies)
