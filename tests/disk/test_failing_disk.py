"""A disk that is full, failing or read-only, at any file of a run: the run goes on or ends in one line, and resumes."""

from __future__ import annotations

import errno
import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import surefoot
from surefoot.checkpoint.outline import leaves
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError
from surefoot.recipe.load import load_recipe
from surefoot.records.log import LogRow, read_rows
from surefoot.records.run import Run, read_run
from surefoot.training.weights import damage_of
from tests.disk.machine import HERE, KILL, Done, Fault, Machine

UNSAVED = 74
WAVE = str(HERE / "wave.py")
FULL, FAILING, READ_ONLY = errno.ENOSPC, errno.EIO, errno.EROFS
CALLS = {"open": (FULL, READ_ONLY), "write": (FULL, FAILING), "fsync": (FAILING,), "rename": (READ_ONLY, FAILING)}
"""What each call is refused with, on disks that there are."""
FILES = {
    "run.json": (".run.json.part", "run.json"),
    "log.jsonl": ("log.jsonl", ""),
    "events.jsonl": ("events.jsonl", ""),
    "plan.json": (".plan.json.part", "plan.json"),
    "recipe.py": (".recipe.py.part", "recipe.py"),
    "lock": ("lock", ""),
    "checkpoints/lock": ("checkpoints/lock", ""),
    "tensors": ("checkpoints/.draft-*", "checkpoints/step-*"),
    "weights": (".weights.part/*", "model.safetensors"),
}
"""Every file of a run: where it is written, and the name that it is given then."""


@dataclass(frozen=True)
class Outcome:
    """What a finished run has come to."""

    weights: bytes
    rows: dict[int, LogRow]
    state: list[tuple[str, str]]
    """Of the checkpoint after the last step, where the disk took one."""


@pytest.fixture(scope="session")
def alone(machine: Machine) -> Outcome:
    """A run that no disk disturbs."""
    folder = machine.folder / "alone"
    assert train(machine, folder).code == 0
    return outcome(folder)


@pytest.fixture(scope="session")
def half(machine: Machine) -> Path:
    """A run that was killed when it wrote the row of its eighth step."""
    folder = machine.folder / "half"
    killed = train(machine, folder, fault=Fault(f"{folder}/log.jsonl", "write", KILL, skip=7))
    assert killed.code == KILL
    assert read_run(folder).status == "running"
    return folder


def train(machine: Machine, folder: Path, *, fault: Fault | None = None, plan: bool = False, words=()) -> Done:
    planned = [] if plan else ["--no-plan"]
    return machine.run("train", WAVE, *words, "--run", str(folder), *planned, fault=fault)


def outcome(folder: Path) -> Outcome:
    run = read_run(folder)
    assert run.status == "finished"
    assert damage_of(run) is None
    newest = Checkpoints(run.checkpoints).newest()
    whole = leaves(newest.load()) if newest is not None and newest.step == run.steps else ()
    state = [(str(place), repr(leaf.tolist() if torch.is_tensor(leaf) else leaf)) for place, leaf in whole]
    return Outcome(run.weights.read_bytes(), {row.step: row for row in run.rows()}, state)


def assert_resumes(machine: Machine, folder: Path, alone: Outcome) -> Run:
    """The same command on a disk that works again ends in the bits of the undisturbed run."""
    again = train(machine, folder)
    assert again.code == (UNSAVED if read_run(folder).unsaved else 0), again.err
    assert not (read_run(folder).unsaved and read_run(folder).saved_step)
    found = outcome(folder)
    assert found.weights == alone.weights
    assert found.state in (alone.state, [])
    assert found.rows.keys() == alone.rows.keys()
    for row in read_rows(folder / "log.jsonl"):
        assert row.differs_from(alone.rows[row.step]) == []
    assert not list(folder.glob(".*.part"))
    return read_run(folder)


def assert_goes_on_or_says(done: Done, folder: Path) -> None:
    """Finished, and it is true; or one message that names a file of the run and says what to do."""
    assert "Traceback" not in done.err, done.err
    if done.code in (0, UNSAVED):
        run = read_run(folder)
        assert (run.status, bool(run.unsaved)) == ("finished", done.code == UNSAVED)
        assert bool(outcome(folder).state) == (done.code == 0)
        return
    assert done.code == 2, done.err
    assert done.err.startswith("error: "), done.err
    assert str(folder) in done.said()
    assert done.said().endswith(", then run the same command again")
    if (folder / "run.json").exists():
        assert read_run(folder).status != "finished"


def faults(names: tuple[str, str]) -> Iterator[Fault]:
    """Every call that a file goes through, with every error that it may meet."""
    written, named = names
    for call, errors in CALLS.items():
        path = named if call == "rename" else written
        for error in errors if path else ():
            yield Fault(path, call, error)


CASES = [(name, fault) for name, names in FILES.items() for fault in faults(names)]


def named(value) -> str:
    return f"{value.calls}-{errno.errorcode[value.error]}" if isinstance(value, Fault) else str(value)


@pytest.mark.sweep
@pytest.mark.parametrize("begun", [False, True], ids=["new", "resumed"])
@pytest.mark.parametrize(("name", "fault"), CASES, ids=named)
def test_a_file_that_the_disk_refuses(name, fault, begun, machine, alone, half, tmp_path):
    folder = tmp_path / "run"
    if begun:
        shutil.copytree(half, folder)
    done = train(machine, folder, fault=replace(fault, path=f"{folder}/{fault.path}"), plan=name == "plan.json")
    assert_goes_on_or_says(done, folder)
    assert_resumes(machine, folder, alone)


EVERY_CALL = {
    "full": Fault("*", "open,write,mkdir", FULL),
    "failing": Fault("*", "open,write,fsync,rename,mkdir", FAILING),
    "read-only": Fault("*", "open,write,rename,mkdir,unlink", READ_ONLY),
    "killed": Fault("*", "open,write,fsync,rename,mkdir,unlink,flock", KILL, times=1),
}
MOMENTS = 400
"""More calls than a run makes."""


@pytest.mark.parametrize("skip", [0, 11, 23, 60, 170, 215])
@pytest.mark.parametrize("what", EVERY_CALL)
@pytest.mark.sweep
def test_a_disk_that_breaks_at_any_moment(what, skip, machine, alone, tmp_path):
    broken_at(machine, tmp_path / "run", what, skip, alone)


@pytest.mark.long
@pytest.mark.parametrize("what", EVERY_CALL)
def test_a_disk_that_breaks_at_every_moment(what, machine, alone, tmp_path):
    for skip in range(MOMENTS):
        broken_at(machine, tmp_path / f"run-{skip}", what, skip, alone)
        shutil.rmtree(tmp_path / f"run-{skip}")


def broken_at(machine: Machine, folder: Path, what: str, skip: int, alone: Outcome) -> None:
    done = train(machine, folder, fault=replace(EVERY_CALL[what], path=f"{folder}*", skip=skip))
    if done.code != KILL:
        assert_goes_on_or_says(done, folder)
    assert_resumes(machine, folder, alone)


def test_a_disk_that_is_full_for_a_while_leaves_no_hole_in_the_log(machine, alone, tmp_path):
    """Rows that are refused are kept, and written in their order when there is room again."""
    folder = tmp_path / "run"
    done = train(machine, folder, fault=Fault(f"{folder}/log.jsonl", "write", FULL, skip=3, times=3))
    assert done.code == 0, done.err
    assert [row.step for row in read_rows(folder / "log.jsonl")] == list(range(1, 11))
    assert outcome(folder).weights == alone.weights


def test_no_checkpoint_without_the_rows_of_its_steps(machine, alone, tmp_path):
    folder = tmp_path / "run"
    done = train(machine, folder, fault=Fault(f"{folder}/log.jsonl", "write", FULL, skip=4))
    assert done.code == 2
    assert f"{folder}/log.jsonl could not be written: No space left on device; free some space" in done.said()
    assert [each.step for each in Checkpoints(folder / "checkpoints")] == [3]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [(each["step"], each["kind"]) for each in events][:2] == [(6, "save-failed"), (9, "save-failed")]
    assert_resumes(machine, folder, alone)


LAST = "the last checkpoint is missing: step 10 was not saved: "


def test_a_last_checkpoint_that_the_disk_refused_is_the_last_word(machine, alone, tmp_path):
    """The weights still fit on the disk, so the run is finished, and its exit code says that something is missing."""
    folder = tmp_path / "run"
    done = train(machine, folder, fault=Fault(f"{folder}/checkpoints/.draft-step-000000010-*", "open", FULL))
    assert done.code == UNSAVED, done.err
    assert done.said().startswith(LAST), done.err
    assert "No space left on device; older checkpoints are unchanged; model.safetensors was written; " in done.said()
    assert done.said().endswith("then run the same command again: it resumes from step 9")
    run = read_run(folder)
    assert (run.status, run.saved_step, run.reason) == ("finished", 9, done.said())
    assert outcome(folder).weights == alone.weights
    assert_resumes(machine, folder, alone)
    assert outcome(folder).state == alone.state


def test_a_run_that_could_save_no_step_is_not_trained_again(machine, alone, tmp_path):
    folder = tmp_path / "run"
    done = train(machine, folder, fault=Fault(f"{folder}/checkpoints/.draft-*", "open", FULL))
    again = train(machine, folder)
    for each in (done, again):
        assert each.code == UNSAVED, each.err
        assert "no step was saved, so training on from it needs a new run in another directory" in each.said()
    assert len(list(read_rows(folder / "log.jsonl"))) == 10
    assert outcome(folder).weights == alone.weights


def test_a_disk_that_takes_neither_the_checkpoint_nor_the_weights(machine, alone, tmp_path):
    folder = tmp_path / "run"
    done = train(machine, folder, fault=Fault(f"{folder}/*.[dw][re][ai]*", "open", FULL))
    assert done.code == 2
    assert done.said().startswith("error: step 10 was not saved: "), done.err
    assert f"and {folder}/model.safetensors could not be written: No space left on device" in done.said()
    assert read_run(folder).status == "failed"
    assert_resumes(machine, folder, alone)


def test_a_stopped_run_that_could_not_save_says_so(tmp_path, monkeypatch):
    def refuse(self, *_):
        raise CheckpointError("step 2 was not saved: No space left on device")

    def tell(run, row):
        if row.step == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Checkpoints, "_publish", refuse)
    run = surefoot.train(load_recipe(WAVE), path=str(tmp_path / "run"), tell=tell)
    assert (run.status, run.unsaved) == ("interrupted", "step 2 was not saved: No space left on device")
    assert run.reason.startswith(
        "stopped by SIGTERM after step 2; the last checkpoint is missing: step 2 was not saved"
    )
    assert "model.safetensors was not written" in run.reason
    assert run.reason.endswith("it resumes from step 0")
    monkeypatch.undo()
    again = surefoot.train(load_recipe(WAVE), path=str(tmp_path / "run"))
    assert (again.status, again.unsaved, again.reason) == ("finished", "", "")


def test_a_log_whose_sync_failed_is_written_anew(machine, alone, tmp_path):
    """The kernel may drop what it could not sync, and call the next sync a success."""
    folder = tmp_path / "run"
    first = tmp_path / "first"
    done = train(machine, folder, fault=Fault(f"{folder}/log.jsonl", "fsync", FAILING, times=1))
    assert done.code == 0, done.err
    assert train(machine, first).code == 0
    assert [row.step for row in read_rows(folder / "log.jsonl")] == list(range(1, 11))
    assert [each.kind for each in read_run(folder).happened()] == ["save-failed"]


def test_events_that_are_refused_are_told_later_or_at_the_end(machine, half, tmp_path):
    shutil.copytree(half, tmp_path / "once")
    shutil.copytree(half, tmp_path / "always")
    once = train(machine, tmp_path / "once", fault=Fault(f"{tmp_path}/once/events.jsonl", "open", FULL, times=1))
    always = train(machine, tmp_path / "always", fault=Fault(f"{tmp_path}/always/events.jsonl", "open", FULL))
    assert (once.code, always.code) == (0, 0)
    assert [each.kind for each in read_run(tmp_path / "once").happened()] == ["resumed"]
    assert read_run(tmp_path / "once").reason == ""
    assert "events.jsonl could not be written: No space left on device" in read_run(tmp_path / "always").reason


def test_findings_that_are_refused_do_not_hide_what_was_found(machine, tmp_path):
    folder = tmp_path / "run"
    fault = Fault(f"{folder}/.findings.json.part", "open", FULL)
    done = train(machine, folder, fault=fault, words=["scale=1e300"])
    assert done.code == 2
    assert done.err.startswith("error: the loss of step 1 is inf")
    [event] = read_run(folder).happened()
    assert (event.kind, "findings.json could not be written" in event.text) == ("not-written", True)


def test_a_full_disk_is_really_full(machine, tmp_path):
    """So that the tests above would notice a shim that does nothing."""
    done = train(machine, tmp_path / "run", fault=Fault(f"{tmp_path}/run*", "open,write,mkdir", FULL))
    assert done.code == 2
    assert f"{tmp_path}/run could not be written: No space left on device" in done.said()


def test_without_locks_of_the_kernel_another_host_is_respected(machine, half, alone, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    no_locks = Fault(f"{folder}/*lock", "flock", errno.ENOLCK)
    there = {**json.loads((folder / "lock").read_text()), "host": "node-7"}
    (folder / "lock").write_text(json.dumps(there))
    done = train(machine, folder, fault=no_locks)
    assert done.code == 2
    assert done.err.startswith(f"error: {folder} is in use by process {there['pid']} on node-7, since "), done.err
    assert f"if it has ended, delete {folder}/lock" in done.said()
    (folder / "lock").unlink()
    done = train(machine, folder, fault=no_locks)  # checkpoints/lock names a process of this machine that is dead
    assert done.code == 0, done.err
    assert outcome(folder).weights == alone.weights
