"""stuck, on real processes that hang: loaders, locks, ranks, runs."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from tests.debug.hangs.programs import hanging

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

LOADER = """
import time, torch
from threading import Lock
from torch.utils.data import DataLoader, Dataset

HELD = Lock()

class Slow(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 5:
            print("ready")
            {hang}
        return torch.zeros(2)

def main():
    HELD.acquire()
    for batch in DataLoader(Slow(), batch_size=2, num_workers=2):
        pass

main()
"""

LOCKS = """
import threading, time

first, second = threading.Lock(), threading.Lock()

def write():
    with second:
        time.sleep(0.5)
        print("ready")
        with first:
            pass

def main():
    threading.Thread(target=write, name="writer", daemon=True).start()
    with first:
        time.sleep(0.7)
        print("ready")
        with second:
            pass

main()
"""

RANKS = """
import os, time, torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def join(x):
    print("ready")
    dist.all_reduce(x)

def other():
    print("ready")
    {other}

dist.barrier()
other() if rank == 1 else join(torch.ones(2))
"""

MOVES = """
import time
print("ready")
total = 0
while True:
    total += 1
    time.sleep(0.001)
    if total % 3 == 0:
        time.sleep(0.001)
"""


def surefoot(*words: object):
    return CliRunner().invoke(app, ["stuck", *map(str, words), "--json"])


def told(pid: int, *words: object) -> dict:
    time.sleep(1)  # time itself: from saying that it is ready to standing there, which nothing shows outside
    done = surefoot(pid, "--seconds", "1", *words)
    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.stdout)
    assert done.exit_code == found["stuck"]
    return found


@pytest.mark.parametrize(
    ("hang", "seen"),
    [
        ("time.sleep(1000)", "is in a sleep at train.py:14 in Slow.__getitem__"),
        ("while True: time.sleep(0.2)", "is in a sleep, again and again, at train.py:14 in Slow.__getitem__"),
        ("HELD.acquire()", "waits for a lock at train.py:14 in Slow.__getitem__"),
    ],
)
def test_a_loader_that_hangs_is_named_by_the_line_of_its_worker(tmp_path, hang, seen):
    with hanging(tmp_path, LOADER.format(hang=hang)) as pid:
        found = told(pid)
    assert found["cause"].startswith("main waits for the data loader at train.py:19 in main; loader worker (process")
    assert found["cause"].endswith(seen)


def test_two_locks_taken_in_different_orders(tmp_path):
    with hanging(tmp_path, LOCKS, lines=2) as pid:
        found = told(pid)
    assert "main waits for a lock at train.py:18 in main" in found["cause"]
    assert "thread writer waits for a lock at train.py:10 in write" in found["cause"]


@pytest.mark.parametrize(
    ("other", "seen"),
    [
        ("time.sleep(1000)", "rank 1 is in no collective: rank 1 waits in a sleep at train.py:14 in other"),
        ("dist.barrier()", "rank 1 in barrier at train.py:14 in other"),
    ],
)
def test_ranks_that_wait_for_each_other(tmp_path, other, seen):
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone")
    with hanging(tmp_path, RANKS.format(other=other), launcher=torchrun, lines=2) as pid:
        found = told(pid)
        late = next(each["pid"] for each in found["processes"] if each["role"] == "rank 1")
        by_rank = told(late)
        os.kill(late, signal.SIGSTOP)
        stopped = told(pid)
    assert seen in found["cause"]
    assert "all_reduce at train.py:10 in join" in found["cause"]
    assert [each["pid"] for each in by_rank["processes"]] == [each["pid"] for each in found["processes"]]
    assert stopped["cause"].startswith(f"rank 1 (process {late}) is stopped")


DDP = """
import time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.BatchNorm1d(2))

def forward():
    print("ready")
    model(torch.ones(4, 2))

def other():
    print("ready")
    time.sleep(1000)

dist.barrier()
forward() if dist.get_rank() == 1 else other()
"""


def test_a_forward_of_ddp_waits_for_the_other_ranks(tmp_path):
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone")
    with hanging(tmp_path, DDP, launcher=torchrun, lines=2) as pid:
        found = told(pid)
    assert found["cause"].startswith("rank 0 is in no collective")
    assert "the others wait in a forward of DistributedDataParallel at train.py:11 in forward" in found["cause"]


def test_a_loop_that_goes_on_is_not_stuck(tmp_path):
    with hanging(tmp_path, MOVES) as pid:
        found = told(pid)
    assert not found["stuck"]


def test_a_run_in_use_is_named_by_its_directory(tmp_path):
    recipe = """
    import sys, time, torch
    from surefoot import Recipe, train

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            if len(SEEN) == 24:
                print("ready")
                time.sleep(1000)
            SEEN.append(index)
            return torch.zeros(3), torch.zeros(1)

    SEEN = []

    def loss(model, batch):
        return torch.nn.functional.mse_loss(model(batch[0]), batch[1])

    def recipe():
        return Recipe(
            model=lambda: torch.nn.Linear(3, 1), data=Slow, loss=loss, micro_batch_size=4, max_steps=50,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        )

    train(recipe(), path=sys.argv[0].replace("train.py", "run"))
    """
    with hanging(tmp_path, recipe):
        found = told(tmp_path / "run")
    assert "at train.py:11 in Slow.__getitem__" in found["cause"]


def test_what_is_no_training_is_refused(tmp_path):
    assert "neither the number of a process nor the directory of a run" in str(surefoot(tmp_path).exception)
    assert "there is no process" in str(surefoot(2**22 + 1).exception)
    with subprocess.Popen(["sleep", "100"]) as other:
        try:
            assert "does not run Python" in str(surefoot(other.pid).exception)
        finally:
            other.kill()


def test_the_text_names_the_cause_first_and_every_process(tmp_path):
    with hanging(tmp_path, LOCKS, lines=2) as pid:
        time.sleep(1)  # time itself: as in `told`
        done = CliRunner().invoke(app, ["stuck", str(pid), "--seconds", "0.5", "--stacks"], env={"COLUMNS": "80"})
    assert done.exit_code == 1
    assert done.stdout.startswith("Main waits for a lock")
    assert "thread writer" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
