"""Other forms of a check's bug than its twin has, each beside what looks like it and is fine."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.twins import Module, X, Y, mlp, numbers, plain, sgd, whole
from tests.checks.twins.data import COUNT, INPUTS, LABELS, trained
from tests.checks.twins.losses import TEXT

TEACHER = numbers(8, 2, seed=1).softmax(-1)


def named(findings) -> list[str]:
    return [finding.check for finding in findings.findings]


def evaluated_on(*parts: TensorDataset, data: TensorDataset) -> list[str]:
    loaders = [DataLoader(part, 8) for part in parts]

    class OneByOne:
        def __iter__(self):
            return (batch for loader in loaders for batch in loader)

    return named(trained(DataLoader(data, 8, shuffle=True), evaluation=OneByOne()))


def test_a_second_loader_of_all_training_samples_is_no_evaluation():
    data = TensorDataset(INPUTS[:32], LABELS[:32])
    again, unseen = TensorDataset(INPUTS[:32], LABELS[:32]), TensorDataset(INPUTS[32:], LABELS[32:])
    assert evaluated_on(again, data=data) == ["evaluation-samples-in-training"]
    assert evaluated_on(data, data=data) == ["evaluation-samples-in-training"]
    assert evaluated_on(again, unseen, data=data) == []


def test_targets_that_are_alike_are_judged_by_how_alike_the_labels_are():
    few, lost = torch.zeros(COUNT, dtype=torch.long), lambda x, y: F.cross_entropy(x, torch.zeros_like(y))
    few[0] = 1  # most samples are of one class
    assert named(trained(DataLoader(TensorDataset(INPUTS, few), 8, sampler=range(8, 40)))) == []
    assert named(trained(DataLoader(TensorDataset(INPUTS, LABELS), 8, shuffle=True), loss=lost)) == ["constant-targets"]


def test_a_recipe_whose_labels_are_lost_is_named_though_few_samples_are_seen(small_recipe):
    recipe = small_recipe("fashion")

    def lost(model, batch):
        return recipe.loss(model, (batch[0], torch.zeros_like(batch[1])))

    assert "constant-targets" in named(surefoot.check(dataclasses.replace(recipe, loss=lost)))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_log_softmax_over_the_samples_right_before_the_loss(loss):
    def over(dim):
        return named(plain(mlp(classes=3), y=whole(3, 8), loss=lambda h, y: loss(h.log_softmax(dim), y)))

    assert over(0) == ["softmax-over-wrong-dimension"]
    assert over(1) == []


def test_features_in_thousands_are_unscaled_unless_the_model_normalises_them():
    raw = INPUTS[:8] * 800 + 3000
    plainly = mlp()
    assert named(plain(plainly, x=raw, optimizer=sgd(plainly, lr=1e-6))) == ["unscaled-inputs"]
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    assert named(plain(model, x=raw)) == []


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
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, attention_mask=keep(real).long()), whole(2, 4)).backward()
            optimizer.step()
        return named(seen.findings)


def test_a_mask_that_keeps_the_padding_is_named():
    assert masked(lambda real: real) == []
    assert masked(lambda real: ~real) == ["padding-in-attention"]


class TimeFirst(nn.Module):
    """A language model that is given (time, samples), and returns one row per token."""

    def __init__(self, batch_first=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.lstm = nn.Embedding(32, 8), nn.LSTM(8, 8, batch_first=batch_first)
        self.end = nn.Linear(8, 32)

    def forward(self, tokens):
        return self.end(self.lstm(self.embed(tokens))[0]).flatten(0, 1)


@pytest.mark.parametrize(
    ("shift", "batch_first", "expected"),
    [(1, False, []), (0, False, ["targets-equal-inputs"]), (1, True, ["samples-mixed-in-batch"])],
)
def test_time_may_come_first(shift, batch_first, expected):
    text = whole(32, 13, 6)
    found = plain(TimeFirst(batch_first), x=text[:12], y=text[shift : shift + 12].flatten())
    assert named(found) == expected


def test_an_input_that_is_one_number_is_no_input():
    assert named(plain(mlp(), x=torch.zeros(8, 4))) == ["input-ignored"]


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


def test_factors_that_are_narrower_than_what_they_join_are_two_layers():
    assert named(plain(nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 3)), y=whole(3, 8))) == []


def test_a_squared_error_of_yes_and_no_is_no_class_number():
    assert named(plain(mlp(classes=1), y=Y.float(), loss=lambda h, y: F.mse_loss(h[:, 0], y))) == []


@pytest.mark.parametrize(("beside", "expected"), [({}, ["checkpoint-without-optimizer"]), ({"acc": 0.9}, [])])
def test_weights_with_their_score_are_the_best_and_not_for_resuming(beside, expected, tmp_path):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def save(step):
        torch.save({"epoch": step, "net": model.state_dict(), **beside}, tmp_path / "ckpt.pth")

    assert named(plain(model, optimizer=optimizer, after=save)) == expected


@pytest.mark.parametrize("form", ["as a number", "as a tensor", "logged"])
def test_a_term_that_is_added_as_a_number_is_found_in_the_sum(form):
    def loss(logits, y):
        term = F.kl_div(logits.log_softmax(-1), TEACHER, reduction="batchmean")
        return (
            F.cross_entropy(logits, y) + {"as a number": 4 * term.item(), "as a tensor": 4 * term, "logged": 0.0}[form]
        )

    expected = ["loss-term-without-gradient"] if form == "as a number" else []
    assert named(plain(mlp(), steps=6, loss=loss)) == expected
