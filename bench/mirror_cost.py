"""mirror_cost: what copying to a mirror costs a step.

    python bench/mirror_cost.py [--quick] [--out FILE]

A perceptron is trained on one thread and saves every fifth step to an S3 server on loopback (moto), which never
catches up: the process that copies always has work. Every ten steps it is stopped (SIGSTOP) or continued in turn. The
ratio is of the median step of ten with copying to that of the ten before it without, and its median over all pairs:
what else runs on the machine meets both sides alike. `own` is the share of the run that the trainer's own threads
spent in the code of the mirror. The server stands for another machine, but shares this one's cores: it runs on while
the copying is stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mirror_kills import couriers_of
from record import write_record
from s3_server import BUCKET, s3_server
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.checkpoint import mirror as mirrors
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.ways.train import train

BLOCK = 10


def model(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def loss(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return model(batch[0]).square().mean()


def recipe(steps: int) -> Recipe:
    return Recipe(
        model=partial(model, 384),
        data=lambda: TensorDataset(torch.randn(1024, 64)),
        loss=loss,
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
        micro_batch_size=128,
        max_steps=steps,
        save_every=5,
        mirror=f"s3://{BUCKET}/cost",
        name="cost",
    )


class Switch:
    """Stops and continues the copying, and notes how long steps take on either side."""

    def __init__(self) -> None:
        self.blocks: list[list[float]] = []
        self._ended = 0.0

    def __call__(self, run: Run, row: LogRow) -> None:
        now = time.perf_counter()
        if row.step % BLOCK:
            if self.blocks:
                self.blocks[-1].append(now - self._ended)
        else:
            self.blocks.append([])
            self.turn(len(self.blocks) % 2 == 0)
        self._ended = time.perf_counter()

    def turn(self, on: bool) -> None:
        for pid in couriers_of(os.getpid()):
            os.kill(int(pid), signal.SIGCONT if on else signal.SIGSTOP)

    def ratios(self) -> list[float]:
        medians = [statistics.median(block) for block in self.blocks if len(block) == BLOCK - 1]
        return [on / off for off, on in zip(medians[::2], medians[1::2], strict=False)]


def timed(spent: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*args, **options)
        finally:
            spent.append(time.thread_time() - began)

    return called


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 pairs instead of 100")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    pairs = 10 if parser.parse_args().quick else 100
    torch.set_num_threads(1)
    spent: list[float] = []
    for name in ("take", "holds", "_has_copied"):
        setattr(mirrors.Mirror, name, timed(spent, getattr(mirrors.Mirror, name)))
    switch = Switch()
    with tempfile.TemporaryDirectory() as here, s3_server(nice=19) as settings:
        os.environ |= settings
        began = time.process_time()

        def tell(run: Run, row: LogRow) -> None:
            switch(run, row)
            if row.step == 2 * BLOCK * pairs + BLOCK - 1:
                switch.turn(True)

        train(recipe(2 * BLOCK * pairs + BLOCK), path=f"{here}/run", tell=tell)
        own = sum(spent) / (time.process_time() - began)
    ratios = switch.ratios()
    low, middle, high = statistics.quantiles(ratios, n=4)
    if out := parser.parse_args().out:
        write_record(out, {"ratios": ratios, "own": own})
    print(f"steps with copying to steps without: a quarter below {low:.3f}, a quarter above {high:.3f}")
    print(f"RESULT pairs={len(ratios)} step_ratio={middle:.4f} own={own:.5f}")


if __name__ == "__main__":
    main()
