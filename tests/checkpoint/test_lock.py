"""One trainer for one run: the living are respected, the dead are not."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surefoot.checkpoint import lock as locks
from surefoot.checkpoint.lock import Lock, Owner
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import RunError
from tests.checkpoint.conftest import state

HOLD = """
import sys, time
from pathlib import Path
from surefoot.checkpoint.lock import Lock
lock = Lock(Path(sys.argv[1])).acquire()
"""


@contextmanager
def holder(folder: Path, then: str = "print('held', flush=True); time.sleep(60)") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD + then, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().startswith("held")
            yield process
        finally:
            process.kill()


def test_a_second_trainer_is_refused_and_told_who_has_the_run(tmp_path):
    with holder(tmp_path) as process:
        wanted = rf"is in use by process {process.pid} on {re.escape(os.uname().nodename)}, since 20\d\d-.*\+00:00"
        with pytest.raises(RunError, match=wanted):
            Lock(tmp_path).acquire()
        with pytest.raises(RunError, match=wanted):
            Checkpoints(tmp_path).save(1, state(1))
        assert process.poll() is None
    assert list(tmp_path.glob("step-*")) == []


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    with holder(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with Lock(tmp_path):
            assert f'"pid": {os.getpid()}' in (tmp_path / "lock").read_text()
    assert (tmp_path / "lock").read_text() == ""


def test_a_worker_that_outlives_its_trainer_does_not_keep_the_lock(tmp_path):
    fork = "import os\nif os.fork() == 0:\n    print('held', os.getpid(), flush=True)\ntime.sleep(60)"
    command = [sys.executable, "-c", HOLD + fork, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline().split()[1])
        try:
            with pytest.raises(RunError):
                Lock(tmp_path).acquire()
            process.kill()
            process.wait()
            os.kill(worker, 0)
            Lock(tmp_path).acquire().release()
        finally:
            os.kill(worker, signal.SIGKILL)


def test_one_process_can_not_hold_it_twice(tmp_path):
    with Lock(tmp_path) as lock:
        assert lock.acquire() is lock
        with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
            Lock(tmp_path).acquire()
    Lock(tmp_path).acquire().release()


def test_a_forgotten_lock_is_free(tmp_path):
    lock = Lock(tmp_path).acquire()
    del lock
    Lock(tmp_path).acquire().release()


def test_checkpoints_that_are_closed_can_be_written_by_others(folder):
    first, second = (Checkpoints(folder, asynchronous=False) for _ in range(2))
    first.save(1, state(1))
    with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        second.save(2, state(2))
    first.close()
    second.save(2, state(2))
    second.close()
    assert [each.step for each in first] == [2, 1]


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, True),
        ({"started": "1"}, False),  # the pid was given to another process since
        ({"pid": 2**22 + 1}, False),  # there is no such process
        ({"host": "elsewhere"}, True),
        ({"boot": "another"}, True),  # another machine may have the same name
        ({"namespace": "pid:[1]"}, True),  # of another container only the kernel's lock knows
    ],
)
def test_without_locks_of_the_kernel_the_file_decides(tmp_path, monkeypatch, change, refused):
    monkeypatch.setattr(locks, "_try_lock", lambda descriptor: None)
    with holder(tmp_path):
        file = tmp_path / "lock"
        owner = dataclasses.replace(Owner(**locks.json.loads(file.read_text())), **change)
        file.write_text(locks.json.dumps(dataclasses.asdict(owner)))
        if refused:
            with pytest.raises(RunError, match="in use by process"):
                Lock(tmp_path).acquire()
        else:
            Lock(tmp_path).acquire().release()


def test_the_lock_of_another_host_is_respected_and_can_be_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_try_lock", lambda descriptor: None)
    file = tmp_path / "lock"
    there = dataclasses.asdict(dataclasses.replace(Owner.current(), host="node-7", pid=4242))
    file.write_text(locks.json.dumps(there))
    with pytest.raises(
        RunError, match=rf"in use by process 4242 on node-7, since .*\n.* delete {re.escape(str(file))}"
    ):
        Lock(tmp_path).acquire()
    assert locks.json.loads(file.read_text()) == there
    file.unlink()
    Lock(tmp_path).acquire().release()


@pytest.mark.parametrize("change", [{"host": "node-7"}, {"boot": "another"}, {"namespace": "pid:[1]"}])
def test_with_locks_of_the_kernel_they_decide(tmp_path, change):
    """A machine that has died in the middle of a run leaves its name, and no lock."""
    there = dataclasses.asdict(dataclasses.replace(Owner.current(), **change))
    (tmp_path / "lock").write_text(locks.json.dumps(there))
    Lock(tmp_path).acquire().release()


def test_a_zombie_is_dead():
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert locks._started(process.pid) is None
    assert process.wait() == 0


def test_drafts_of_the_dead_are_swept_by_whoever_saves_next(folder):
    (folder / ".draft-step-000000009-0badcafe").mkdir(parents=True)
    checkpoints = Checkpoints(folder, asynchronous=False)
    assert checkpoints.newest() is None
    assert list(folder.glob(".draft-*"))  # whoever only reads does not touch what may be somebody's
    checkpoints.claim()
    assert not list(folder.glob(".draft-*"))
    checkpoints.close()
