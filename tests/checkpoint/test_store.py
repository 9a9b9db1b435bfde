"""Checkpoints: saved whole, found by step, kept as long as they are needed."""

import os
import threading
import time
from pathlib import Path

import pytest
import torch

from surefoot.checkpoint.checkpoint import Checkpoint
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError
from tests.checkpoint.conftest import is_state, state


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_saved_is_what_is_loaded(folder, asynchronous):
    checkpoints = Checkpoints(folder, asynchronous=asynchronous)
    weight = torch.randn(3, 5)
    given = {"w": weight, "tied": weight, "bf16": torch.randn(7).bfloat16(), "none": None, "empty": torch.empty(0, 3)}
    checkpoints.save(7, given)
    checkpoints.close()
    loaded = checkpoints.newest().load()
    assert list(loaded) == list(given)
    assert loaded["none"] is None
    assert loaded["tied"] is loaded["w"]
    for name in ("w", "bf16", "empty"):
        assert loaded[name].dtype == given[name].dtype
        assert torch.equal(loaded[name], given[name])


def test_training_may_go_on_as_soon_as_the_save_returns(folder, monkeypatch):
    """Nothing is written before the tensors have changed, and yet what they were is saved; twice, in one buffer."""
    checkpoints, go = Checkpoints(folder), threading.Event()
    publish = checkpoints._publish
    monkeypatch.setattr(checkpoints, "_publish", lambda *arguments: go.wait() and publish(*arguments))
    weight = torch.ones(5)
    for step in (1, 2):
        checkpoints.save(step, {"w": weight})
        weight += 1
        go.set()
        checkpoints.wait()
        go.clear()
    assert [each.load()["w"].tolist() for each in checkpoints] == [[2.0] * 5, [1.0] * 5]
    checkpoints.close()


def test_tensors_that_are_given_are_filled_in_place(checkpoints):
    weight = torch.randn(2, 3)
    checkpoints.save(1, {"w": weight, "tied": weight, "moment": torch.ones(2, 3), "lr": 0.1})
    into = {"w": torch.zeros(2, 3), "tied": torch.zeros(3, 2).t()}
    loaded = checkpoints.newest().load(into)
    assert loaded["w"] is into["w"]
    assert loaded["tied"] is into["tied"]
    assert torch.equal(into["w"], weight)
    assert torch.equal(into["tied"], weight)
    assert torch.equal(loaded["moment"], torch.ones(2, 3))
    assert loaded["lr"] == 0.1


@pytest.mark.parametrize(
    ("into", "reason"),
    [
        ({"w": torch.zeros(3)}, r"state\['w'\] is float32\[3\] here and float32\[2\] in the checkpoint"),
        ({"w": torch.zeros(2).half()}, r"state\['w'\] is float16\[2\] here and float32\[2\]"),
        ({"v": torch.zeros(2)}, r"state\['v'\] is not in the checkpoint"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(checkpoints, into, reason):
    checkpoints.save(1, {"w": torch.ones(2)})
    with pytest.raises(CheckpointError, match=reason):
        checkpoints.newest().load(into)
    assert not any(tensor.any() for tensor in into.values())


def test_a_folder_without_checkpoints_has_no_newest(checkpoints):
    assert checkpoints.newest() is None
    assert checkpoints.rejected == []


def test_the_newest_is_the_one_of_the_highest_step_whatever_the_clock_says(checkpoints, folder):
    for step in (9, 999_999_999, 2_000_000_000):
        checkpoints.save(step, state(step))
    now = time.time()
    for age, path in enumerate(sorted(folder.glob("step-*"))):
        os.utime(path, (now - 1e6 * age, now - 1e6 * age))
    assert [checkpoint.step for checkpoint in checkpoints] == [2_000_000_000, 999_999_999, 9]
    assert checkpoints.newest().step == 2_000_000_000


def test_only_the_newest_are_kept(checkpoints, folder):
    for step in range(1, 6):
        checkpoints.save(step, state(step))
    assert names(folder) == ["step-000000003", "step-000000004", "step-000000005"]


def test_a_step_that_is_saved_again_takes_the_place_of_the_first(checkpoints, folder):
    checkpoints.save(5, state(5))
    checkpoints.save(5, {**state(5), "again": True})
    assert names(folder) == ["step-000000005-2"]
    assert checkpoints.newest().load()["again"]


def test_what_was_just_saved_is_kept_also_beside_newer_ones(folder):
    """A run that was set back to an earlier step saves again from there."""
    checkpoints = Checkpoints(folder, keep_last=1, asynchronous=False)
    for step in (9, 5, 6):
        checkpoints.save(step, state(step))
    checkpoints.close()
    assert names(folder) == ["step-000000006", "step-000000009"]


def test_damaged_checkpoints_do_not_count_as_kept(folder):
    checkpoints = Checkpoints(folder, keep_last=2, asynchronous=False)
    for step in (1, 2):
        checkpoints.save(step, state(step))
    flip(folder / "step-000000002" / "__0_0.distcp")
    checkpoints.save(3, state(3))
    assert names(folder) == ["step-000000001", "step-000000002", "step-000000003"]
    flip(folder / "step-000000003" / "__0_0.distcp")
    checkpoints.close()
    assert Checkpoints(folder).newest().step == 1
    checkpoints.save(4, state(4))
    checkpoints.save(5, state(5))
    assert names(folder) == ["step-000000004", "step-000000005"]


def test_the_last_whole_one_outlives_any_number_of_damaged_ones(folder, monkeypatch):
    """Also if everything that is saved from now on is damaged as soon as it is there."""
    checkpoints = Checkpoints(folder, keep_last=1, asynchronous=False)
    checkpoints.save(1, state(1))
    retain = checkpoints._retain

    def damage_then_retain(step: int) -> None:
        flip(next(iter(checkpoints)).path / "state.json")
        retain(step)

    monkeypatch.setattr(checkpoints, "_retain", damage_then_retain)
    for step in (2, 3, 4):
        with pytest.raises(CheckpointError, match=f"step {step} was saved, but reads back damaged: state.json"):
            checkpoints.save(step, state(step))
    assert is_state(checkpoints.newest().load(), 1)
    assert [path.name for path, _ in checkpoints.rejected] == ["step-000000004", "step-000000003", "step-000000002"]


def test_all_damaged_is_an_error_that_lists_them(checkpoints, folder):
    for step in (1, 2, 3):
        checkpoints.save(step, state(step))
    flip(folder / "step-000000001" / "MANIFEST")
    (folder / "step-000000002" / ".metadata").unlink()
    flip(folder / "step-000000003" / "__0_0.distcp")
    with pytest.raises(CheckpointError) as error:
        checkpoints.newest()
    assert str(error.value).splitlines()[1:] == [
        "  step-000000003: __0_0.distcp is damaged: its bytes do not match their hash",
        "  step-000000002: .metadata is missing",
        "  step-000000001: MANIFEST is damaged: it does not match its own hash",
    ]


def test_a_checkpoint_under_another_name_is_refused(checkpoints, folder):
    checkpoints.save(1, state(1))
    (folder / "step-000000001").rename(folder / "step-000000002")
    with pytest.raises(CheckpointError, match="MANIFEST is of step 1, not of step 2"):
        checkpoints.newest()


def test_a_save_under_way_is_waited_for_and_no_two_write_at_once(folder, monkeypatch):
    checkpoints = Checkpoints(folder, keep_last=10)
    publish, running = checkpoints._publish, []

    def slow(step, *rest):
        running.append(step)
        assert len(list(folder.glob(".draft-*"))) == 0
        time.sleep(0.1)  # time itself: the next save comes while this one is under way
        publish(step, *rest)

    monkeypatch.setattr(checkpoints, "_publish", slow)
    began = time.monotonic()
    for step in (1, 2, 3):
        checkpoints.save(step, state(step))
    assert time.monotonic() - began > 0.2
    checkpoints.close()
    assert running == [1, 2, 3]
    for checkpoint in checkpoints:
        assert is_state(checkpoint.load(), checkpoint.step)


def test_a_failed_save_is_heard_of_at_the_next_call_which_saves_all_the_same(folder, monkeypatch):
    checkpoints = Checkpoints(folder)
    complete, failing = checkpoints._complete, [True]

    def failing_once(*arguments):
        if failing.pop() if failing else False:
            raise OSError(5, "Input/output error")
        complete(*arguments)

    monkeypatch.setattr(checkpoints, "_complete", failing_once)
    checkpoints.save(1, state(1))
    with pytest.raises(CheckpointError, match=r"step 1 was not saved: .*Input/output error"):
        checkpoints.save(2, state(2))
    checkpoints.close()
    assert names(folder) == ["step-000000002"]


def test_a_wait_raises_what_went_wrong_once(folder, monkeypatch):
    checkpoints = Checkpoints(folder)
    monkeypatch.setattr(checkpoints, "_complete", lambda *_: 1 / 0)
    checkpoints.save(1, state(1))
    with pytest.raises(CheckpointError, match="step 1 was not saved: division by zero"):
        checkpoints.wait()
    checkpoints.close()
    assert names(folder) == []


def test_what_cannot_be_saved_is_refused_before_anything_is_written(checkpoints, folder):
    with pytest.raises(CheckpointError, match=r"state\['hook'\] is a builtins.function"):
        checkpoints.save(1, {"hook": lambda: None})
    assert names(folder) == []


def test_keeping_none_is_refused(folder):
    with pytest.raises(CheckpointError, match="keep_last is 0"):
        Checkpoints(folder, keep_last=0)


def test_another_folder_is_not_a_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="is not the name of a checkpoint"):
        Checkpoint(tmp_path)


def test_nothing_is_loaded_unverified(checkpoints, folder):
    checkpoints.save(1, state(1))
    flip(folder / "step-000000001" / "__0_0.distcp")
    with pytest.raises(CheckpointError, match=r"^__0_0\.distcp is damaged"):
        Checkpoint(folder / "step-000000001").load()


def test_an_interrupted_save_leaves_nothing_behind(checkpoints, folder, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "_complete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(1, state(1))
    assert names(folder) == []
