"""Tells whether an optimizer continues the training that a file was saved from."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer


def goes_on(optimizer: Optimizer, groups: list[dict[str, Any]]) -> bool:
    """Is the optimizer of the same kind as in the file, with no smaller learning rate? If not, other training
    begins.
    """
    own = optimizer.param_groups
    alike = [len(each["params"]) for each in own] == [len(each["params"]) for each in groups]
    kinds = [set(each) - {"initial_lr"} for each in (own[0], groups[0])]
    made_with = _made_with(optimizer)
    as_fast = max(_planned(own), made_with) >= 0.99 * _planned(groups) or made_with == float(groups[0].get("lr", 0.0))
    return alike and kinds[0] == kinds[1] and as_fast


def _made_with(optimizer: Optimizer) -> float:
    """The learning rate that all groups were created with; 0 if groups have different rates."""
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    return float(optimizer.defaults.get("lr", 0.0)) if len(rates) == 1 else 0.0


def _planned(groups: list[dict[str, Any]]) -> float:
    """The largest initial learning rate of a schedule, or the largest rate."""
    return max(float(each.get("initial_lr", each.get("lr", 1.0))) for each in groups)
