"""Replays the updates before a step with a smaller learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from typing import Any

import torch

from surefoot.records.log import LogRow
from surefoot.training.guards.spike import Spikes
from surefoot.training.replay import Replay

BACK = (1, 2, 4, 8)
"""How many of the last updates are changed, in turn."""
SMALLER, JUMP = 0.1, 2.0
"""The factor on a rate that did not jump; a rate so many times that of the steps before has jumped."""


def jumped(rows: Mapping[int, LogRow], step: int) -> float | None:
    """The usual learning rate before a step, if that of the step is far above it."""
    before = [rows[each].lr for each in range(step - len(BACK) * 2, step) if each in rows]
    usual = median(before) if before else 0.0
    return usual if usual > 0 and rows[step].lr >= JUMP * usual else None


def is_steep(rows: Mapping[int, LogRow], step: int) -> float | None:
    """The usual gradient norm before a step, if that of the step stands out."""
    norms = [rows[each].grad_norm for each in sorted(rows) if each <= step]
    known = [each for each in norms if each is not None]
    seen = Spikes(known[:-1])
    return seen.usual() if known and seen.knows and known[-1] > seen.limit() else None


def replayed_slower(replay: Replay, last: int, changed: int, factor: float) -> None:
    """Replays up to step `last`, the last `changed` updates with their rates multiplied."""
    replay.again()
    replay.advance_to(last - changed)
    with ExitStack() as hooks:
        for optimizer in replay.step.optimizers:
            _scale_rates(optimizer, factor, hooks)
        replay.advance_to(last)


def _scale_rates(optimizer: torch.optim.Optimizer, factor: float, hooks: ExitStack) -> None:
    """Every update has its rates multiplied; schedulers see them as they were."""
    before: list[Any] = []

    def lower(*_: Any) -> None:
        before[:] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def put_back(*_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = rate

    hooks.callback(optimizer.register_step_pre_hook(lower).remove)
    hooks.callback(optimizer.register_step_post_hook(put_back).remove)
