"""In turns: one loop in one process, whose steps are bare, and as `watch --run` follows them once it checks no more.

A machine that others use changes from one process to the next by more than watching costs; from one step to the next it
changes less.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader

from surefoot.costs.compare import compared
from surefoot.events.phases import Phases
from surefoot.meters.log_rows import Rows
from surefoot.meters.pace import Pace
from surefoot.records.log import append_row
from surefoot.records.profile import Comparison
from watched.model import Model, Tokens


def in_turns(rounds: int) -> Comparison:
    """CPU seconds of steps that are watched over those of steps that are not."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Tokens(32 * (rounds + 5)), batch_size=16, shuffle=True))

    def step() -> float:
        began = time.process_time()
        optimizer.zero_grad()
        loss = model(**next(batches))["loss"]
        loss.backward()
        optimizer.step()
        loss.item()
        return time.process_time() - began

    def watched() -> float:
        rows = Rows(phases := Phases(model), lambda row: append_row(log, row))
        with phases, rows:
            phases.listeners += [Pace(phases, skipped=0), rows]
            phases.only_models()
            return step()

    for _ in range(5):
        step()
    seconds: dict[Callable[[], float], list[float]] = {step: [], watched: []}
    with tempfile.TemporaryFile("w") as log:
        for number in range(rounds):
            for side in (step, watched) if number % 2 else (watched, step):
                seconds[side].append(side())
    return compared("bare", "watched", seconds[step], seconds[watched])
