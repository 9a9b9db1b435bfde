"""Tells whether an optimizer continues the training that a file was saved from."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer


def goes_on(optimizer: Optimizer, groups: list[dict[str, Any]]) -> bool:
    """Is it one of the kind that a file holds, no smaller in rate? Otherwise other training begins with its weights."""
    own = optimizer.param_groups
    alike = [len(each["params"]) for each in own] == [len(each["params"]) for each in groups]
    kinds = [set(each) - {"initial_lr"} for each in (own[0], groups[0])]
    made_with = _made_with(optimizer)
    as_fast = max(_planned(own), made_with) >= 0.99 * _planned(groups) or made_with == float(groups[0].get("lr", 0.0))
    return alike and kinds[0] == kinds[1] and as_fast


def _made_with(optimizer: Optimizer) -> float:
    """The rate that all groups were made with, however it was changed by hand; nothing where a group has its own."""
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    return float(optimizer.defaults.get("lr", 0.0)) if len(rates) == 1 else 0.0


def _planned(groups: list[dict[str, Any]]) -> float:
    """The largest rate that a schedule starts from, or that there is."""
    return max(float(each.get("initial_lr", each.get("lr", 1.0))) for each in groups)
