"""A trainer that is killed takes its data workers along, at whatever moment and however it started them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.waiting import has_ended, until

LOADER = """
import os, sys, threading, time
import torch.multiprocessing as mp
from surefoot.data.batches import micro_batches
from tests.test_children import Slow
def start():
    batches = micro_batches(Slow(), size=2, seed=0, workers=2, ahead=True)
    next(batches)
    print(*(each.pid for each in mp.active_children()), flush=True)
    return batches
if __name__ == "__main__":
    if sys.argv[1] == "thread":
        kept = []
        thread = threading.Thread(target=lambda: kept.append(start()))
        thread.start()
        thread.join()  # the workers were started by a thread that is gone
        time.sleep(0.5)
        next(kept[0])
        print("alive", flush=True)
    else:
        mp.set_start_method(sys.argv[1])
        kept = start()
    time.sleep(60)
"""


class Slow:
    """A data set whose samples take a while: torch's workers look after their parent between samples only."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, number: int) -> int:
        if number % 2:
            time.sleep(0.02)  # time itself: a worker at work
        return number


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch's own workers look after their parent")
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "thread"])
def test_workers_end_with_their_trainer(how, tmp_path):
    program = tmp_path / "loads.py"
    program.write_text(LOADER)
    root = os.path.dirname(os.path.dirname(__file__))
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    command = [sys.executable, str(program), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=settings) as trainer:
        workers = [int(word) for word in trainer.stdout.readline().split()]
        assert len(workers) == 2
        if how == "thread":
            assert trainer.stdout.readline() == "alive\n"
        assert not any(map(has_ended, workers))
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
        # A signal of the kernel comes at once, and a busy machine takes its time to end a process; a thread looks every
        # second. torch's own look every five.
        until(lambda: all(map(has_ended, workers)), seconds=3)


def test_a_worker_whose_trainer_is_gone_already_ends_at_once():
    program = (
        "import os, time\n"
        "from surefoot.world.child_processes import tied_to_this_process\n"
        "tie = tied_to_this_process()\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(0.2)\n"  # its parent is not the trainer, as if the trainer had died before
        "        tie()\n"
        "        print('lives on', flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "time.sleep(0.5)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
