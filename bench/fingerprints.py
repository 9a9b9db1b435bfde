"""What comparing replicas costs: the time of fingerprints over the time of the steps between which they come.

    python bench/fingerprints.py [--quick] [--out FILE]

The recipe `gpt` in two sizes is trained by `surefoot.train` on 2 gloo ranks that replicate it, one thread each, as
`surefoot train` trains: after every step it is asked whether to compare, and from time to time it is done
(`training/guards/fingerprint.py`). Both are timed in the run itself, step by step, so that whatever slows the machine
slows both. A comparison waits for the slower rank, which the next step would do otherwise; by CPU seconds it does not
count. Prints one line `RESULT fingerprint_share=F fingerprint_share_cpu=F`, of the size where it is larger.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from record import write_record
from trainers.works import TIMED

import surefoot
from surefoot.step import Step
from surefoot.training.guards.fingerprint import Fingerprints

RANKS = 2
STEPS = {"gpt short": 300, "gpt long": 60}
CLOCKS = {"clock": time.perf_counter, "cpu": time.thread_time}


class Spent:
    """Seconds inside some methods, by each clock, and how often they were called."""

    def __init__(self) -> None:
        self.seconds, self.calls = dict.fromkeys(CLOCKS, 0.0), 0

    def follow(self, owner: type, name: str) -> None:
        method = getattr(owner, name)

        def timed(*args: Any) -> Any:
            began = {name: clock() for name, clock in CLOCKS.items()}
            try:
                return method(*args)
            finally:
                self.calls += 1
                for name, clock in CLOCKS.items():
                    self.seconds[name] += clock() - began[name]

        setattr(owner, name, timed)


def rank_of(pipe: Any, work: str, steps: int, rank: int, meeting: str, folder: str) -> None:
    """What one rank does."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    asked, compared, stepped = Spent(), Spent(), Spent()
    asked.follow(Fingerprints, "due")
    compared.follow(Fingerprints, "compare")
    stepped.follow(Step, "__call__")
    settings = {"dp_replicate": RANKS, "max_steps": steps, "save_every": None}
    surefoot.train(replace(TIMED[work](), **settings), path=folder)
    spent = {name: (asked.seconds[name] + compared.seconds[name]) / stepped.seconds[name] for name in CLOCKS}
    pipe.send({"share": spent, "compared": compared.calls, "steps": steps})
    torch.distributed.destroy_process_group()


def measured(work: str, steps: int) -> dict[str, Any]:
    """The rank that spends the larger share."""
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(RANKS):
            receiver, sender = processes.Pipe(duplex=False)
            where = f"file://{folder}/meeting", f"{folder}/run"
            child = processes.Process(target=rank_of, args=(sender, work, steps, rank, *where))
            child.start()
            children.append((receiver, child))
        found = [receiver.recv() for receiver, _ in children]
        for _, child in children:
            child.join()
    worst: dict[str, Any] = max(found, key=lambda each: each["share"]["clock"])
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smaller size, a third of the steps")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    options = parser.parse_args()
    works = {"gpt short": STEPS["gpt short"] // 3} if options.quick else STEPS
    found = {}
    for work, steps in works.items():
        found[work] = row = measured(work, steps)
        clock, cpu = (row["share"][name] for name in CLOCKS)
        print(f"{work:10} compared {row['compared']} times in {steps} steps: {clock:.2%} of their time, CPU {cpu:.2%}")
    if options.out:
        write_record(options.out, found)
    clock, cpu = (max(row["share"][name] for row in found.values()) for name in CLOCKS)
    print(f"RESULT fingerprint_share={clock:.5f} fingerprint_share_cpu={cpu:.5f}")


if __name__ == "__main__":
    main()
