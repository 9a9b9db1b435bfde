"""Files that another training begins with, that are put to use, or that a run goes back to."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.test_resumed_runs import X, Y, adam, named, net, through_a_file, train

pytestmark = pytest.mark.sweep

OTHER_X = torch.randn(64, 6, generator=torch.Generator().manual_seed(9))


def whole(model, optimizer):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}


@pytest.mark.parametrize(("x", "expected"), [(X, ["unrestored-optimizer"]), (OTHER_X, [])])
def test_training_on_other_data_may_begin_with_an_optimizer_of_its_own(x, expected):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        train(model, optimizer)
        kept = through_a_file(whole(model, optimizer))
        model = net()
        model.load_state_dict(kept["model"])
        train(model, adam(model), x=x)
    assert named(seen) == expected


def test_the_best_of_a_fold_may_be_tested_before_the_next_fold_is_trained():
    def test(kept):
        model = net()
        model.load_state_dict(kept["model"])
        with torch.no_grad():
            return model.eval()(X).argmax(1).eq(Y).float().mean()

    with surefoot.watch() as seen:
        for _ in range(2):
            model = net()
            optimizer = adam(model)
            train(model, optimizer)
            test(through_a_file(whole(model, optimizer)))
    assert named(seen) == []


class Coder(nn.Module):
    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x):
        return self.head(self.encoder(x))


def test_an_encoder_may_be_the_smaller_part_of_a_file_and_of_a_model():
    def found(names) -> list[str]:
        pretrained = Coder(decoder=nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 6)))
        kept = through_a_file({names(name): each for name, each in pretrained.state_dict().items()})
        with surefoot.watch() as seen:
            model = Coder(head=nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 2)))
            model.load_state_dict(kept, strict=False)
            train(model, adam(model))
        return named(seen)

    assert found(lambda name: name) == []


def test_names_that_do_not_match_are_told_by_their_shapes():
    with surefoot.watch() as seen:
        model = net()
        kept = through_a_file({f"module.{name}": each for name, each in net().state_dict().items()})
        model.load_state_dict(kept, strict=False)
        train(model, adam(model))
    assert "few-matching-weights" in named(seen)


def test_an_optimizer_may_be_put_back_and_then_be_given_a_schedule():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        sweep = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.2)
        for _ in range(4):
            train(model, optimizer, steps=1)
            sweep.step()
        model.load_state_dict(before[0])
        optimizer.load_state_dict(before[1])
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=8)
        for _ in range(8):
            train(model, optimizer, steps=1)
            cycle.step()
    assert named(seen) == []


def test_a_run_may_go_back_to_its_best_and_count_on():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        files = []
        for epoch in range(6):
            train(model, optimizer, steps=2)
            if epoch == 3:
                kept = through_a_file(files[1])
                model.load_state_dict(kept["model"])
                optimizer.load_state_dict(kept["optimizer"])
            files.append(copy.deepcopy({**whole(model, optimizer), "epoch": epoch}))
            torch.save(files[-1], io.BytesIO())
    assert named(seen) == []


def saved_in_passes(save) -> list[str]:
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        for epoch in range(3):
            train(model, optimizer)
            with torch.no_grad():
                loss = float(F.cross_entropy(model(OTHER_X), Y))
            save(model, epoch, loss)
    return named(seen)


class Stopping:
    best = None

    def __call__(self, model, epoch, loss):
        if self.best is None or loss < self.best:
            self.best = loss
            self.write(model, epoch)

    def write(self, model, epoch):
        torch.save({"epoch": epoch, "model": model.state_dict()}, io.BytesIO())


def test_the_best_weights_are_known_by_the_record_that_they_are_saved_with():
    assert saved_in_passes(Stopping()) == []
    assert saved_in_passes(lambda model, epoch, loss: Stopping().write(model, epoch)) == [
        "checkpoint-without-optimizer"
    ]


def test_what_is_saved_when_training_is_over_is_put_to_use(tmp_path):
    def found(name="net.pt", **beside) -> list[str]:
        with surefoot.watch() as seen:
            model = net()
            optimizer = adam(model)
            train(model, optimizer)
            if "scheduler" in beside:
                beside = {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2).state_dict()}
            torch.save({"epoch": 3, "model": model.state_dict(), **beside}, tmp_path / name)
        return named(seen)

    assert found() == []
    assert found(classes=["left", "right"]) == []
    assert found("ckpt.pt") == ["checkpoint-without-optimizer"]
    assert "checkpoint-without-optimizer" in found(scheduler=True)


class Remembers(nn.Module):
    """A net with tensors that no state_dict holds."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.layer, self.out, self.reads = nn.Linear(6, 8), nn.Linear(8, 2), reads
        self.seen, self.noise, self.last = torch.zeros(8), torch.zeros(8, 6), torch.zeros(16, 2)

    def forward(self, x):
        self.noise = torch.randn(8, 6)
        hidden = F.linear(x, self.layer.weight + 0.01 * self.noise, self.layer.bias)
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * hidden.detach().mean(0)
        out = self.out(hidden - self.seen if self.reads else hidden)
        self.last = out.detach()
        return out


@pytest.mark.parametrize("reads", [False, True])
def test_tensors_that_no_output_depends_on_are_no_state(reads):
    with surefoot.watch() as seen:
        model = Remembers(reads=reads)
        train(model, adam(model))
    lost = [each for each in seen.findings.findings if each.check == "state-lost-on-reload"]
    assert [each.where for each in lost] == (["seen"] if reads else [])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out, self.state = nn.GRUCell(6, 8), nn.Linear(8, 2), torch.zeros(16, 8)

    def forward(self, x):
        state = self.cell(x, self.state)
        self.state = state.detach()
        return self.out(state)


@pytest.mark.parametrize(("resets", "expected"), [(True, []), (False, ["state-lost-on-reload"])])
def test_a_state_that_every_pass_begins_anew_is_not_lost(resets, expected):
    with surefoot.watch() as seen:
        model = Recurrent()
        optimizer = adam(model)
        for _ in range(3):
            if resets:
                model.state = torch.zeros(16, 8)
            train(model, optimizer, steps=3)
    assert [each for each in named(seen) if each == "state-lost-on-reload"] == expected
