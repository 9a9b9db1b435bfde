"""rank_kills: `kill -9` of one rank of torchrun's at random moments; `python bench/kills.py --ranks` runs it.

A small recipe is trained on 2 and on 4 gloo ranks, replicated (ddp), sharded (fsdp) or with a small gpt whose tokens
are split (cp, which `--layouts` asks for), by torchrun with restarts. One
rank, drawn at random, is killed at a random moment: torchrun must start all again, and the run must end in the bits,
samples and rows of an undisturbed run of the same layout. Half of the kills wait for a checkpoint being written.
The ranks that are left must name the one that was killed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from surefoot import Recipe, load_recipe

STEPS, BATCH = 40, 8
LAYOUTS = {
    "ddp 4": (4, "dp_replicate=4"),
    "fsdp 4": (4, "dp_shard=4"),
    "ddp 2": (2, "dp_replicate=2"),
    "fsdp 2": (2, "dp_shard=2"),
}
OTHERS = {
    "cp 2": (2, "cp=2"),
    "cp 4": (4, "cp=4"),
    "heads 2": (2, "cp=2 cp_by=heads"),
}
"""Layouts that are killed only if asked for: they split the tokens of a small gpt."""
EACH = 5
"""So many kills to a run."""
_NAMED = re.compile(r"(?:RankLost|error)[^:]*: rank (\d+) was lost")


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def killed() -> Recipe:
    """What the ranks train."""
    import kills

    return Recipe(
        model=model,
        data=kills.Noisy,
        loss=kills.loss,
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
        micro_batch_size=2,
        global_batch_tokens=BATCH,
        max_grad_norm=1.0,
        max_steps=STEPS,
        save_every=2,
        keep_last=2,
    )


def killed_gpt() -> Recipe:
    """What the ranks train that have parts of the tokens."""
    words = ["layers=1", "width=32", "heads=2", "context=32", "micro_batch_size=2", f"global_batch_tokens={32 * BATCH}"]
    return replace(load_recipe("gpt", words), max_steps=STEPS, save_every=2, keep_last=2)


class Job:
    """torchrun, and the ranks below it."""

    def __init__(self, layout: str, folder: Path) -> None:
        ranks, words = (LAYOUTS | OTHERS)[layout]
        recipe = "killed_gpt" if layout in OTHERS else "killed"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        again = ["--max-restarts", "100", "--monitor-interval", "0.1"]
        made = f"{Path(__file__)}:{recipe}"
        train = ["-m", "surefoot", "train", made, *words.split(), "--no-plan", "--dir", str(folder)]
        settings = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "999", "PYTHONPATH": _with(Path(__file__).parent)}
        self.folder, self.said = folder, folder.with_suffix(".said")
        with self.said.open("w") as said:
            self.process = subprocess.Popen([*launcher, *again, *train], stdout=said, stderr=said, env=settings)

    def rows(self) -> int:
        log = self.folder / "log.jsonl"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def saving(self) -> bool:
        return any((self.folder / "checkpoints").glob(".draft-*"))

    def named(self) -> Counter[int]:
        """How often each rank was said to be lost."""
        return Counter(map(int, _NAMED.findall(self.said.read_text())))

    def ranks(self) -> dict[int, int]:
        """The processes that train, and the rank of each."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = {}
        for child in map(int, children.read_text().split() if children.exists() else ()):
            try:
                if rank := re.search(rb"\0RANK=(\d+)", Path(f"/proc/{child}/environ").read_bytes()):
                    found[child] = int(rank[1])
            except OSError:
                continue
        return found


def _with(folder: Path) -> str:
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))


def kill_one(job: Job, draw: random.Random) -> int | None:
    """Waits for a moment after new steps, and kills one rank. Returns it; None if the run ended before."""
    wanted = job.rows() + draw.randrange(1, 5)
    while job.rows() < wanted:
        if job.process.poll() is not None:
            return None
        time.sleep(0.002)
    if draw.random() < 0.5:
        until = time.monotonic() + 1
        while not job.saving() and time.monotonic() < until:
            time.sleep(0.0005)
    time.sleep(draw.random() * 0.02)
    ranks = job.ranks()
    if job.process.poll() is not None or not ranks:
        return None
    process = draw.choice(list(ranks))
    os.kill(process, signal.SIGKILL)
    return ranks[process]


def kill_ranks(
    most: int, minutes: float, draw: random.Random, layouts: list[str]
) -> Iterator[tuple[str, int, int, list[str]]]:
    """Layout after layout: how many kills, how many of them the other ranks named, and what was wrong in the end.

    No run begins once the time is over.
    """
    import kills

    until = time.monotonic() + 60 * minutes

    with tempfile.TemporaryDirectory() as here:
        usual = {}
        done = turn = 0
        while done < most and time.monotonic() < until:
            layout = layouts[turn % len(layouts)]
            folder, turn, killed = Path(here) / f"run-{turn}", turn + 1, Counter[int]()
            if layout not in usual:
                alone = Job(layout, folder.with_name(f"usual-{turn}"))
                if alone.process.wait() != 0:
                    raise RuntimeError(f"{layout} fails without any kill:\n{alone.said.read_text()[-3000:]}")
                usual[layout] = kills.outcome(alone.folder)
            job = Job(layout, folder)
            while killed.total() < min(EACH, most - done) and (rank := kill_one(job, draw)) is not None:
                killed[rank] += 1
            code = job.process.wait()
            wrong = [f"torchrun ended with {code}:\n{job.said.read_text()[-3000:]}"] if code else []
            wrong += kills.differences(folder, usual[layout], kills.Toll(), steps=STEPS, samples=STEPS * BATCH)
            done += killed.total()
            yield layout, killed.total(), (killed & job.named()).total(), wrong
            shutil.rmtree(folder)


def main(most: int, minutes: float, seed: int, layouts: list[str]) -> tuple[int, int, list[str]]:
    """All kills, how many of them were named, and all that was wrong."""
    total, named, wrong, began = 0, 0, list[str](), time.monotonic()
    for layout, count, told_of, found in kill_ranks(most, minutes, random.Random(seed), layouts):
        total, named, wrong = total + count, named + told_of, [*wrong, *(f"{layout}: {each}" for each in found)]
        each = (time.monotonic() - began) / max(1, total)
        told = (
            f"{layout:8} {count:3} ranks killed, {total:4} in all, {named} named, {each:.0f} s each, wrong {len(wrong)}"
        )
        print(told, flush=True)
    return total, named, wrong
