"""The numbers that a script prints, logs and sends to trackers are read, and its output stays as it is."""

import logging
import sys
import types

import pytest
import torch
from torch import nn

import surefoot
from surefoot.checks.evaluation.logged_numbers import LoggedNumbers
from surefoot.checks.watcher import Watcher
from surefoot.events.phases import Phases
from tests.checks.programs import X, Y, mlp, sgd


def series_of(tell, *, steps=3, before=lambda model: None):
    """The series that are read while `tell(step, loss)` is called after every update."""
    phases = Phases()
    watcher = Watcher(phases)
    model = mlp()
    optimizer = sgd(model)
    with phases, watcher:
        before(model)
        for step in range(steps):
            loss = nn.functional.cross_entropy(model(X), Y)
            loss.backward()
            optimizer.step()
            tell(step, loss)
        (facts,) = watcher[LoggedNumbers].facts()
    return facts.series


def test_printed_numbers_have_their_line_their_update_and_their_part_of_the_data(capsys):
    def tell(step, loss):
        print(f"epoch {step} train loss {0.5 - step / 8:.4f}", "| val: acc", 25 * step, "%")

    loss, accuracy = series_of(tell)
    assert (loss.name, loss.kind, loss.phase, loss.updates) == ("train loss", "loss", "train", (1, 2, 3))
    assert (loss.values, loss.decimals) == ((0.5, 0.375, 0.25), (4, 4, 4))
    assert (accuracy.kind, accuracy.phase, accuracy.values) == ("accuracy", "held out", (0.0, 0.25, 0.5))
    assert loss.where == accuracy.where
    assert loss.where.rpartition(":")[0] == __file__


def test_what_is_printed_is_not_changed(capsys):
    def tell(step, loss):
        print("loss", end=": ")
        print(step, "", sep="\r\n", end="", flush=True)
        sys.stderr.write(f"acc {step}")
        assert sys.stdout.write("") == 0

    series_of(tell)
    shown = capsys.readouterr()
    assert shown.out == "loss: 0\r\nloss: 1\r\nloss: 2\r\n"
    assert shown.err == "acc 0acc 1acc 2"
    assert "write" not in vars(sys.stdout)


def test_what_is_logged_is_read_once_wherever_it_goes(capsys):
    logger = logging.Logger("quiet")
    logger.addHandler(logging.StreamHandler(sys.stdout))
    (loss,) = series_of(lambda step, loss: logger.info("val loss %.3f", step / 2))
    assert (loss.values, loss.phase) == ((0.0, 0.5, 1.0), "held out")
    assert loss.where.rpartition(":")[0] == __file__


def test_a_long_series_keeps_its_first_and_its_late_values(capsys):
    def tell(step, loss):
        for number in range(1000):
            print(f"loss {number}.0")

    (loss,) = series_of(tell, steps=1)
    assert len(loss.values) < 512
    assert loss.values[0] == 0
    assert loss.values[-1] > 990


class Run:
    """As Weights & Biases has it: what it prints of a call is not a number of its own."""

    def log(self, data, step=None):
        print(data)


def test_trackers_are_followed_by_their_classes(monkeypatch, capsys):
    module = types.ModuleType("wandb.sdk.wandb_run")
    module.Run = type("Run", (Run,), {"log": Run.log})
    monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_run", module)
    run = module.Run()

    def tell(step, loss):
        for batch in range(2):
            run.log({"val/acc": torch.tensor(0.25 * batch), "loss": loss, "lr": 0.1, "picture": "loss"}, step=step)

    accuracy, loss = series_of(tell)
    assert (accuracy.values, accuracy.phase, accuracy.printed) == ((0.125,) * 3, "held out", False)
    assert loss.values[0] == pytest.approx(0.7, abs=0.2)
    assert loss.where.rpartition(":")[0] == __file__


def test_tensorboard_gets_a_tag_and_a_number(tmp_path):
    board = pytest.importorskip("torch.utils.tensorboard")
    with board.SummaryWriter(tmp_path) as writer:
        (mae,) = series_of(lambda step, loss: writer.add_scalar("mae/test", scalar_value=step, global_step=step))
    assert (mae.kind, mae.phase, mae.values) == ("mae", "held out", (0.0, 1.0, 2.0))


def test_a_progress_bar_is_asked_and_not_read_from_the_screen(capsys):
    tqdm = pytest.importorskip("tqdm")
    with tqdm.tqdm(total=3, mininterval=0) as bar:
        (loss,) = series_of(lambda step, loss: (bar.set_postfix(loss=f"{step / 4:.2f}"), bar.update()))
    assert loss.values == (0.0, 0.25, 0.5)


def test_only_weights_that_nothing_trained_or_loaded_are_random(capsys):
    def before(model):
        print("accuracy 0.1")
        model(X)
        print("accuracy 0.2")

    def loaded(model):
        model.load_state_dict(model.state_dict())
        before(model)

    unseen, seen = series_of(lambda step, loss: None, before=before)
    assert (unseen.untrained, seen.untrained) == (0, 1)
    assert [each.untrained for each in series_of(lambda step, loss: None, before=loaded)] == [0, 0]


def test_a_loop_of_its_own_streams_is_left_alone(monkeypatch):
    class Bare:
        __slots__ = ()

        def write(self, text):
            return len(text)

        def flush(self):
            pass

    monkeypatch.setattr(sys, "stdout", Bare())
    with surefoot.watch() as seen:
        print("loss 0.5")
    assert not seen.findings.failure
