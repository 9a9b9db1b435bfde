"""What was examined and what was not is said by what observers saw: updates, losses, data, evaluation, files, ranks."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from surefoot.events.watch_budget import Budget
from surefoot.records.codec import from_json, to_json
from surefoot.records.finding import Findings
from surefoot.reports.console import as_text
from surefoot.reports.findings import findings_text
from surefoot.watch import watch_script
from tests.checks.programs import X, Y, mlp, numbers, sgd


def watched(loss, *, steps=4, batches=None, after=None) -> Findings:
    model = mlp()
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch(model, optimizer) as seen:
        for number, batch in zip(range(steps), batches or [(X, Y)] * steps, strict=False):
            optimizer.zero_grad()
            loss(model, *batch).backward()
            optimizer.step()
            if after is not None:
                after(model, number)
        return seen.findings


def entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def odd(model, x, y):
    out = model(x)
    return (out.exp() - out).mean() + out.var().log()


def entropy_and_odd(model, x, y):
    return entropy(model, x, y) + odd(model, x, y)


@pytest.mark.parametrize(("loss", "known"), [(entropy, True), (entropy_and_odd, True), (odd, False)])
def test_a_loss_that_was_not_understood_is_said(loss, known):
    found = watched(loss)
    assert ("cross_entropy" in found.examined) is known
    assert bool(found.unknown_losses) is not known
    assert found.findings == ()
    told = as_text(findings_text(found))
    assert ("was not understood" in " ".join(told.split())) is not known
    assert ("test_coverage.py" in told) is not known


def squares(model, x, y):
    return (model(x) - F.one_hot(y, 2)).square().mean()


def test_a_loss_by_hand_is_recognised_by_its_gradient():
    found = watched(squares)
    assert "a loss by hand" in found.examined
    assert not found.unknown_losses


def rewarded(model, x, y):
    advantages = x[:, 0] * (2 * y - 1)
    return -(model(x).log_softmax(-1).gather(1, y[:, None])[:, 0] * advantages).mean()


def test_the_rewards_of_a_policy_gradient_are_not_examined():
    assert any(each.startswith("the rewards that weigh log-probabilities") for each in watched(rewarded).not_examined)


def evaluate(model, _):
    model.eval()
    with torch.no_grad():
        model(numbers(8, 4, seed=9)).argmax(1)
    model.train()


@pytest.mark.parametrize("evaluated", [True, False])
def test_evaluation(evaluated):
    found = watched(entropy, after=evaluate if evaluated else None)
    assert ("evaluation" in found.examined) is evaluated
    assert any(each.startswith("evaluation") for each in found.not_examined) is not evaluated


def test_a_teacher_in_every_step_is_no_evaluation():
    teacher = mlp().eval()

    def distilled(model, x, y):
        with torch.no_grad():
            wanted = teacher(x).softmax(1)
        return F.cross_entropy(model(x), wanted)

    assert "evaluation" not in watched(distilled, batches=[(numbers(8, 4, seed=n), Y) for n in range(4)]).examined


def test_data():
    loader = DataLoader(TensorDataset(numbers(32, 4), torch.arange(32) % 2), 8, shuffle=True)
    assert "1 data loader" in watched(entropy, batches=loader).examined
    fresh = [(numbers(8, 4, seed=n), Y.flip(0) if n % 2 else Y) for n in range(4)]
    assert any(
        each.startswith("where samples come from") for each in watched(entropy, batches=iter(fresh)).not_examined
    )


def test_files(tmp_path):
    def save(model, number):
        torch.save(model.state_dict(), tmp_path / "weights.pt")

    found = watched(entropy, after=save)
    assert "4 files saved" in found.examined
    assert "resuming (no file was loaded)" in found.not_examined
    loaded = watched(entropy, after=lambda model, number: torch.load(tmp_path / "weights.pt"))
    assert "4 files loaded" in loaded.examined
    assert not any(each.startswith("resuming") for each in loaded.not_examined)


def test_a_loop_without_updates():
    with surefoot.watch() as seen:
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert "updates (no optimizer made one)" in seen.findings.not_examined


SCRIPT = """
import torch
from torch import nn

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(104):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 2, (8,))).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("check_all", [True, False])
def test_updates_after_the_hundredth(check_all, tmp_path, monkeypatch):
    monkeypatch.setattr(Budget, "is_spent", lambda *_: False)  # on a busy machine it may be
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    found = watch_script(str(script), check_all=check_all).findings
    assert ("104 updates" if check_all else "100 of 104 updates") in found.examined
    assert ("updates after the first 100" in found.not_examined) is not check_all
    assert from_json(Findings, to_json(found)) == found
