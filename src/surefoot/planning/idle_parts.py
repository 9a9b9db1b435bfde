"""Idle parts: the trainable parameters that no gradient reached, because a step was planned without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from surefoot.records.plan import WITHOUT
from surefoot.step import Step

LEAST_SHARE = 0.01
"""Of the trainable parameters: fewer are a detail."""
NAMED = 3


@contextmanager
def idle_parts(step: Step) -> Iterator[Callable[[], str]]:
    """A context in which the updates of steps are heard. Yields what says which parameters had no gradient in any."""
    reached = set[int]()

    def update_begins(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            reached.update(id(each) for each in group["params"] if each.grad is not None)

    hook = register_optimizer_step_pre_hook(update_begins)
    try:
        yield lambda: _told(step.model, reached)
    finally:
        hook.remove()


def _told(model: torch.nn.Module, reached: set[int]) -> str:
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    idle = {name: each.numel() for name, each in trained.items() if id(each) not in reached}
    share = sum(idle.values()) / max(1, sum(each.numel() for each in trained.values()))
    if share < LEAST_SHARE or not reached:
        return ""
    parts = list(dict.fromkeys(name.rpartition(".")[0] or name for name in idle))
    more = f" and {len(parts) - NAMED:,} more" if len(parts) > NAMED else ""
    return (
        f"{WITHOUT}{share:.0%} of the trainable parameters, {', '.join(parts[:NAMED])}{more}: no gradient reached "
        "them. The code chose by values that a plan does not know, so this is not validated"
    )
