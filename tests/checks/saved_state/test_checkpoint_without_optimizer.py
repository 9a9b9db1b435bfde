"""checkpoint-without-optimizer: the buggy and the fixed program, variants, and what looks like it and is fine."""

import io

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import found_by, mlp, named, plain, twin
from tests.checks.saved_state.programs import OTHER_X, SIDES, adam, net, saved, saving, train

pytestmark = pytest.mark.sweep


@twin("checkpoint-without-optimizer")
def _(buggy):
    import io

    def saved(model, optimizer):
        state = {"epoch": 3, "model": model.state_dict()}
        return state if buggy else {**state, "optimizer": optimizer.state_dict()}

    return saving(io.BytesIO(), saved)


class Stopping:
    best = None

    def __call__(self, model, epoch, loss):
        if self.best is None or loss < self.best:
            self.best = loss
            self.write(model, epoch)

    def write(self, model, epoch):
        torch.save({"epoch": epoch, "model": model.state_dict()}, io.BytesIO())


def saved_in_passes(save) -> list[str]:
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        for epoch in range(3):
            train(model, optimizer)
            with torch.no_grad():
                loss = float(F.cross_entropy(model(OTHER_X), SIDES))
            save(model, epoch, loss)
    return found_by(seen)


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
        return found_by(seen)

    assert found() == []
    assert found(classes=["left", "right"]) == []
    assert found("ckpt.pt") == ["checkpoint-without-optimizer"]
    assert "checkpoint-without-optimizer" in found(scheduler=True)


def test_a_setting_in_a_file_is_no_counter():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def save(**beside):
        return plain(
            model,
            optimizer=optimizer,
            after=lambda step: torch.save({"model": model.state_dict(), **beside}, io.BytesIO()),
        )

    assert named(save(epochs=3)) == []
    assert named(save(epoch=3)) == ["checkpoint-without-optimizer"]


def test_states_of_optimizers_may_stand_in_a_list():
    def whole(model, optimizer):
        return {"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()], "epoch": 1}

    assert saved(whole) == []
    bare = saved(lambda model, _: {"state_dict": model.state_dict(), "optimizer_states": [], "epoch": 1})
    assert bare == ["checkpoint-without-optimizer"]


@pytest.mark.parametrize(("beside", "expected"), [({}, ["checkpoint-without-optimizer"]), ({"acc": 0.9}, [])])
def test_weights_with_their_score_are_the_best_and_not_for_resuming(beside, expected, tmp_path):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def save(step):
        torch.save({"epoch": step, "net": model.state_dict(), **beside}, tmp_path / "ckpt.pth")

    assert named(plain(model, optimizer=optimizer, after=save)) == expected
