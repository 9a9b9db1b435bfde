"""What is put back of a checkpoint, and what is missing in a file, in forms that differ from the twins."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.watch import watch_script
from tests.checks.twins import X, Y

pytestmark = pytest.mark.sweep


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def resumed(restore) -> list[str]:
    """What is said of a run that goes on from a file, with the optimizer that `restore` returns."""
    model = net()
    optimizer = adam(model)
    step(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizers": [optimizer.state_dict()], "step": 1}, file)
    file.seek(0)
    with surefoot.watch(model) as seen:
        kept = torch.load(file)
        model.load_state_dict(kept["model"])
        going_on = restore(model, adam(model), kept["optimizers"][0])
        for _ in range(3):
            step(model, going_on)
    return [each.check for each in seen.findings.findings]


def put_back(model, optimizer, state):
    optimizer.load_state_dict(state)
    return optimizer


def put_into_another(model, optimizer, state):
    adam(model).load_state_dict(state)
    return optimizer


def made_anew(model, optimizer, state):
    optimizer.load_state_dict(state)
    return adam(model)


@pytest.mark.parametrize("restore", [put_into_another, made_anew])
def test_an_optimizer_that_goes_on_without_the_state_is_named_though_another_was_given_it(restore):
    assert resumed(restore) == ["unrestored-optimizer"]


def test_an_optimizer_that_was_given_its_state_may_go_on():
    assert resumed(put_back) == []


def saved(content) -> list[str]:
    model = net()
    optimizer = adam(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            step(model, optimizer)
            torch.save(content(model, optimizer), io.BytesIO())
    return [each.check for each in seen.findings.findings]


def test_a_file_with_all_parameters_and_no_running_statistics_is_named():
    assert saved(lambda model, _: {n: p.detach() for n, p in model.named_parameters()}) == ["state-lost-on-reload"]
    assert saved(lambda model, _: {n: p.detach() for n, p in model[0].named_parameters()}) == []
    assert saved(lambda model, _: model.state_dict()) == []


def test_states_of_optimizers_may_stand_in_a_list():
    def whole(model, optimizer):
        return {"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()], "epoch": 1}

    assert saved(whole) == []
    bare = saved(lambda model, _: {"state_dict": model.state_dict(), "optimizer_states": [], "epoch": 1})
    assert bare == ["checkpoint-without-optimizer"]


# ------------------------------------------------------------------------------------------- more of what goes on


def without_moments(model, optimizer, state):
    optimizer.load_state_dict(state | {"state": {}})
    return optimizer


def test_a_state_whose_moments_were_taken_out_is_none():
    assert "unrestored-optimizer" in resumed(without_moments)


def scheduled(model):
    optimizer = adam(model)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))


def gone_on(restore) -> list[str]:
    """What is said of a run whose state is kept in memory, with a schedule that has begun."""
    model = net()
    with surefoot.watch(model) as seen:
        optimizer, schedule = scheduled(model)
        for _ in range(3):
            step(model, optimizer)
            schedule.step()
        kept = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
        optimizer, schedule = scheduled(model)
        restore(optimizer, schedule, *kept)
        for _ in range(3):
            step(model, optimizer)
            schedule.step()
    return [each.check for each in seen.findings.findings]


def restore_all(optimizer, schedule, its_state, state_of_schedule):
    optimizer.load_state_dict(its_state)
    schedule.load_state_dict(state_of_schedule)


def restore_optimizer(optimizer, schedule, its_state, _):
    optimizer.load_state_dict(its_state)


def set_back(optimizer, schedule, *kept):
    restore_all(optimizer, schedule, *kept)
    for group in optimizer.param_groups:
        group["lr"] = 1e-2


def halve(optimizer, schedule, *kept):
    restore_all(optimizer, schedule, *kept)
    for group in optimizer.param_groups:
        group["lr"] /= 2


@pytest.mark.parametrize(
    ("restore", "expected"),
    [
        (restore_all, []),
        (halve, []),
        (restore_optimizer, ["unrestored-scheduler"]),
        (set_back, ["unrestored-scheduler"]),
    ],
)
def test_a_schedule_goes_on_where_its_optimizer_does(restore, expected):
    assert gone_on(restore) == expected


def begun_from(read, *, prefix="") -> list[str]:
    """What is said of a training that begins with a file."""
    model, file = net(), io.BytesIO()
    torch.save({"weights": {prefix + name: each + 1 for name, each in model.state_dict().items()}}, file)
    file.seek(0)
    with surefoot.watch(model) as seen:
        read(model, torch.load(file))
        optimizer = adam(model)
        for _ in range(3):
            step(model, optimizer)
    return [each.check for each in seen.findings.findings]


def whole_file(model, kept):
    model.load_state_dict(kept, strict=False)


def those_that_match(model, kept):
    own = model.state_dict()
    own.update({name: each for name, each in kept["weights"].items() if name in own})
    model.load_state_dict(own)


def one_by_one(model, kept):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in kept["weights"]:
                parameter.copy_(kept["weights"][name])


@pytest.mark.parametrize("read", [those_that_match, one_by_one])
def test_weights_of_a_file_that_match_no_name_are_missed_however_they_are_read(read):
    assert begun_from(read, prefix="module.") == ["few-matching-weights"]
    assert begun_from(read) == []


def test_a_file_is_not_the_weights_in_it():
    assert begun_from(whole_file) == ["few-matching-weights"]


class Kit:
    def __init__(self, model):
        self.model = model


@pytest.mark.parametrize("hold", [lambda model: (model, 1), lambda model: {"all": [model]}, Kit])
def test_a_module_is_seen_in_whatever_it_is_saved_in(hold):
    assert saved(lambda model, _: hold(model)) == ["pickled-module"]


@pytest.mark.parametrize("counts", [True, False])
def test_a_number_that_a_forward_counts_and_depends_on_is_lost(counts):
    class Fading(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.seen = net(), 0

        def forward(self, x):
            self.seen += 1
            return self.net(x) * (1 + 1 / self.seen if counts else 1)

    model = Fading()
    with surefoot.watch(model) as seen:
        optimizer = adam(model)
        for _ in range(3):
            step(model, optimizer)
    assert [each.check for each in seen.findings.findings] == (["state-lost-on-reload"] if counts else [])


def test_what_is_saved_at_the_end_of_a_long_script_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "long.py"
    script.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)\n"
        "for step in range(120):\n"
        "    optimizer.zero_grad()\n"
        "    (layer(torch.randn(4, 2)) - 1).square().mean().backward()\n"
        "    optimizer.step()\n"
        "torch.save(layer, 'layer.pt')\n",
        encoding="utf-8",
    )
    assert [each.check for each in watch_script(str(script)).findings.findings] == ["pickled-module"]
