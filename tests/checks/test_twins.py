"""Every check has a buggy program that it names and a fixed twin that is clean; look-alikes are clean too."""

import importlib
import inspect
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.checks.registry import CHECKS
from tests.checks.twins import TWINS, X, Y, mlp, plain, sgd
from tests.checks.twins.models import Listed

for subject in ("data", "losses", "loops", "models", "runs"):
    importlib.import_module(f"tests.checks.twins.{subject}")

ALONE = (
    "clipping-by-local-norm",
    "diverging-replicas",
    "gradients-reduced-twice",
    "metric-of-one-rank",
    "same-randomness-on-all-ranks",
    "shards-lost-in-saving",
    "sync-in-every-micro-batch",
    "unequal-step-counts",
    "unsharded-data",
)


class Teacher(nn.Module):
    """Hides a frozen teacher in a list on purpose."""

    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(4, 2).requires_grad_(False)]
        self.student = mlp()
        self.also_listed = [self.student[0]]

    def forward(self, x):
        return self.student(x) + self.hidden[0](x)


class Attending(nn.Module):
    """A softmax inside, with a layer between it and the loss."""

    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(F.softmax(self.score(x), -1) * x)


def in_eval(model, *, train_again: bool):
    model.eval()
    if train_again:
        model.train()
    return plain(model)


def cut(logits, target):
    return F.cross_entropy(logits.detach().requires_grad_(), target)


def test_every_check_has_twins():
    assert {*TWINS, *ALONE} == set(CHECKS)


@pytest.mark.parametrize("name", TWINS)
def test_the_buggy_twin_is_named_and_only_that(name: str):
    findings = TWINS[name](True)
    assert [finding.check for finding in findings.findings] == [name]
    for part in (finding := findings.findings[0]).seen, finding.where, finding.why, finding.remedy:
        assert part
        assert not re.search(r"(?<!, )\b1 ([A-Z]\w+ )?[a-z]*[^\Ws]s\b", part)  # `1 tensors`


@pytest.mark.parametrize("name", TWINS)
def test_the_fixed_twin_is_clean(name: str):
    assert TWINS[name](False).findings == ()


@pytest.mark.parametrize("container", [tuple, dict])
def test_other_plain_containers_are_seen_too(container):
    finding = plain(Listed(container)).findings[0]
    assert finding.check == "layers-in-plain-list"
    assert finding.where == "layers"


def test_unregistered_layers_that_an_optimizer_does_train_are_a_warning():
    model = Listed()
    everything = [*model.parameters(), *(p for layer in model.layers for p in layer.parameters())]
    findings = plain(model, optimizer=torch.optim.SGD(everything, lr=0.1))
    assert [(finding.check, finding.severity) for finding in findings.findings] == [("layers-in-plain-list", "warning")]


def test_a_graph_cut_between_model_and_loss_is_a_detached_loss():
    assert [finding.check for finding in plain(mlp(), loss=cut).findings] == ["detached-loss"]


def accumulating():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(6):
            (F.cross_entropy(model(X), Y) / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
    return seen.findings


def accumulating_without_zeroing():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(6):
            (F.cross_entropy(model(X), Y) / 2).backward()
            if number % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
    return seen.findings


def adversarial_game():
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    makers, judges = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    with surefoot.watch() as seen:
        for _ in range(3):
            judges.zero_grad()
            (judge(X).mean() - judge(maker(X).detach()).mean()).backward()
            judges.step()
            makers.zero_grad()
            judge(maker(X)).mean().backward()
            makers.step()
    return seen.findings


def frozen_norm():
    model = mlp(nn.BatchNorm1d(8))
    model[2].eval()
    return plain(model)


def frozen_part():
    model = mlp(nn.Dropout(0.1))
    model[0].requires_grad_(False)
    return plain(model, optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))


def evaluating_between():
    model = mlp(nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                model(X)
    return seen.findings


def gradient_of_the_input():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            x = X.clone().requires_grad_()
            F.cross_entropy(model(x), Y).backward()
            optimizer.zero_grad()
            F.cross_entropy(model(X + 0.01 * x.grad.sign()), Y).backward()
            optimizer.step()
    return seen.findings


def by_hand():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = None
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    return seen.findings


def second_order_optimizer():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        return loss

    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.step(closure)
    return seen.findings


LOOK_ALIKES = [
    accumulating, adversarial_game, frozen_norm, frozen_part, evaluating_between, gradient_of_the_input, by_hand,
    second_order_optimizer, lambda: plain(Teacher()), lambda: plain(Attending()),
    lambda: in_eval(mlp(), train_again=False), lambda: in_eval(mlp(nn.Dropout(0.0)), train_again=False),
]  # fmt: skip


@pytest.mark.parametrize("program", LOOK_ALIKES, ids=lambda f: f.__name__)
def test_look_alikes_are_clean(program):
    assert program().findings == ()


def test_accumulation_without_zeroing_is_still_seen():
    assert [finding.check for finding in accumulating_without_zeroing().findings] == ["missing-zero-grad"]


@pytest.mark.parametrize("divided", [True, False])
def test_micro_batches_are_summed_with_a_scaler_too(divided):
    model = mlp()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for x, y in zip(X.chunk(2), Y.chunk(2), strict=True):
                scaler.scale(F.cross_entropy(model(x), y) / (2 if divided else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [each.check for each in seen.findings.findings] == ([] if divided else ["summed-micro-batches"])


@pytest.mark.parametrize("negated", [True, False])
def test_a_loss_of_ones_own_that_is_negated_is_seen_behind_the_count_it_is_divided_by(negated):
    def error(logits, target):
        squares = (logits[:, 0] - target).square().sum()
        return (-squares if negated else squares) / len(target)

    assert [each.check for each in plain(mlp(), loss=error).findings] == (["negated-loss"] if negated else [])


@pytest.mark.parametrize("negated", [True, False])
def test_a_negated_error_is_seen_under_a_scaler(negated):
    model = mlp()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            squares = (model(X)[:, 0] - Y).square().mean()
            scaler.scale(-squares if negated else squares).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [each.check for each in seen.findings.findings] == (["negated-loss"] if negated else [])


def test_a_loss_that_torch_itself_divides_by_a_number_is_followed():
    shares = torch.stack([1.0 - Y, 1.0 * Y], 1)
    assert plain(mlp(), y=shares).findings == ()


@pytest.mark.parametrize("twice", [True, False])
def test_a_loss_that_is_scaled_and_back_propagated_twice_is_seen(twice):
    model = mlp()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            scaler.scale(loss / 2).backward(retain_graph=twice)
            if twice:
                scaler.scale(loss / 2).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [each.check for each in seen.findings.findings] == (["repeated-backward"] if twice else [])


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("stepped", [True, False])
def test_a_scheduler_that_is_never_stepped_is_seen(stepped, chained):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        if chained:
            slow = torch.optim.lr_scheduler.StepLR(optimizer, step_size=50)
            scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [scheduler, slow], milestones=[100])
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if stepped:
                scheduler.step()
    assert [each.check for each in seen.findings.findings] == ([] if stepped else ["scheduler-out-of-order"])


def test_a_check_can_be_allowed_and_an_unknown_one_is_refused():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer, allow=["missing-zero-grad"]) as seen:
        for _ in range(3):
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    assert seen.findings.findings == ()
    assert seen.findings.allowed == ("missing-zero-grad",)
    with surefoot.watch(model, allow=["zero-grad"]) as seen:
        pass
    with pytest.raises(surefoot.SurefootError, match="no check is called 'zero-grad'; known: activation-before"):
        _ = seen.findings


def test_the_line_of_user_code_is_named():
    finding = plain(mlp(), zero=False).findings[0]
    line = next(n for n, text in enumerate(inspect.getsourcelines(plain)[0]) if "optimizer.step()" in text)
    assert finding.where == f"{inspect.getsourcefile(plain)}:{inspect.getsourcelines(plain)[1] + line}"


def test_a_recipe_whose_loss_has_no_graph_is_a_finding_and_not_a_traceback(small_recipe):
    import dataclasses

    recipe = small_recipe("sentiment")
    broken = dataclasses.replace(recipe, loss=lambda model, batch: recipe.loss(model, batch)[0].detach())
    findings = surefoot.check(broken)
    assert [finding.check for finding in findings.errors] == ["detached-loss"]
    assert findings.findings[0].where == "the recipe's loss"


def test_an_error_of_the_recipe_itself_is_not_swallowed(small_recipe):
    import dataclasses

    def loss(model, batch):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        surefoot.check(dataclasses.replace(small_recipe("sentiment"), loss=loss))
