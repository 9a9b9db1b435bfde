"""Trains in child processes that are killed at random moments, until one of them comes to the end.

    python -m tests.checkpoint.killed FOLDER {sync,async} KILLS STEPS SEED

A kill comes some milliseconds after a save has begun. Prints what was seen as JSON.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # children are forked

import torch

from surefoot.checkpoint.outline import leaves
from surefoot.checkpoint.state import restore, state_of
from surefoot.checkpoint.store import Checkpoints
from tests.checkpoint.states import OPTIMIZERS, step_with, take
from tests.waiting import until


def train(folder: Path, asynchronous: bool, steps: int) -> Any:
    """Resumes where the last one left off, saves after every step, and notes what it was promised to be saved."""
    torch.manual_seed(0)
    step = step_with(OPTIMIZERS["adamw-foreach"])
    checkpoints = Checkpoints(folder, asynchronous=asynchronous)
    newest = checkpoints.newest()
    if newest is not None:
        restore(step, newest)
        assert step.number == newest.step
    while step.number < steps:
        take(step, 1)
        checkpoints.save(step.number, state_of(step))
        promise(folder, step.number - asynchronous)
    checkpoints.close()
    promise(folder, steps)
    return step


def promise(folder: Path, step: int) -> None:
    """Appended in one write: a kill cannot tear it."""
    with open(folder.parent / "promised", "ab", buffering=0) as file:
        file.write(f"{step}\n".encode())


def promised(folder: Path) -> int:
    """The last promise. The file may not be there yet, or be there and be empty: opening makes it, writing fills it."""
    file = folder.parent / "promised"
    promises = file.read_text().split() if file.exists() else []
    return int(promises[-1]) if promises else 0


def digest(step: Any) -> str:
    found = hashlib.sha256()
    for place, leaf in leaves(state_of(step)):
        found.update(repr(place).encode())
        found.update(leaf.contiguous().numpy().tobytes() if isinstance(leaf, torch.Tensor) else repr(leaf).encode())
    return found.hexdigest()


def in_child(folder: Path, asynchronous: bool, steps: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            text = digest(train(folder, asynchronous, steps))
            (folder.parent / "digest").write_text(text)
            os._exit(0)
        except BaseException as error:
            print(f"a child failed: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    return pid


def wait_for(pid: int, condition: Callable[[], bool]) -> None:
    """Until something is so, or the child has ended."""
    until(lambda: condition() or os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), pause=0.0002)


def drive(folder: Path, asynchronous: bool, kills: int, steps: int, seed: int) -> dict[str, Any]:
    chance, seen = random.Random(seed), {"kills": 0, "inside_a_save": 0, "lost": 0, "damaged": 0, "failed": 0}
    while True:
        pid = in_child(folder, asynchronous, steps)
        if seen["kills"] < kills:
            before = promised(folder)
            wait_for(pid, lambda before=before: promised(folder) > before)  # drafts of the dead are swept by now
            wait_for(pid, lambda: any(folder.glob(".draft-*")))
            time.sleep(chance.uniform(0, 0.005))  # time itself: killed at any moment of a save
            os.kill(pid, signal.SIGKILL)
            seen["kills"] += 1
        _, status = os.waitpid(pid, 0)
        if status == 0:
            return {**seen, "digest": (folder.parent / "digest").read_text()}
        seen["failed"] += os.waitstatus_to_exitcode(status) != -signal.SIGKILL
        seen["inside_a_save"] += any(folder.glob(".draft-*"))
        reader = Checkpoints(folder)
        newest = reader.newest()
        seen["damaged"] += len(reader.rejected)
        seen["lost"] += newest is None or newest.step < promised(folder)


if __name__ == "__main__":
    where, how, *numbers = sys.argv[1:]
    print(json.dumps(drive(Path(where), how == "async", *map(int, numbers))))
