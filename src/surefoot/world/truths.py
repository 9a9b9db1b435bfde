"""Truths: what a fake step assumes where code branches on a value that no fake tensor has.

Every number is finite. A single number is 1 where it is compared, as `.item()` returns it. `.all()` of many is true and
`.any()` is false: code asks so whether its values are valid, as `torch.distributions` and `trunc_normal_` do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch

_COMPARED = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
_JOINED = {"all": all, "any": any, "mul": all, "logical_and": all, "bitwise_and": all}
_JOINED |= {"logical_or": any, "bitwise_or": any}


@dataclass(frozen=True)
class Truth:
    """A value that is assumed, and what the plan says about it. A value that is known needs no words."""

    value: bool
    why: str = ""


FINITE = "all numbers are finite"
ONE = "a number that is compared is 1"
Truths = MutableMapping[torch.Tensor, Truth]
Read = Callable[[torch.Tensor], float | None]


def truth_of(func: Any, args: Any, out: Any, truths: Truths, read: Read) -> Truth | None:
    """What an operator's result is assumed to be. None if it is no truth, or nothing is assumed of it.

    `read` returns the only element of a tensor; None if it is not known.
    """
    name = func.overloadpacket.__name__
    name = {"_is_all_true": "all", "_is_any_true": "any"}.get(name, name)
    if name in ("isnan", "isinf"):
        return Truth(False, FINITE)
    if name in ("new_ones", "new_zeros") and out.dtype is torch.bool and out.numel() == 1:
        return Truth(name == "new_ones")
    if name in ("eq", "ne"):
        with_itself, with_infinity = args[1] is args[0], isinstance(args[1], float) and math.isinf(args[1])
        if with_itself or with_infinity:
            return Truth((name == "eq") == with_itself, FINITE)
    if name in _COMPARED:
        left, right = (_number(each, truths, read) for each in args[:2])
        why = next((number.why for each in args[:2] if (number := _counted(each, truths))), ONE)
        return None if left is None or right is None else Truth(bool(_COMPARED[name](left, right)), why)
    known = [assumed_of(arg, truths, read) for arg in args if isinstance(arg, torch.Tensor)]
    if name == "all" and args[0].dim() and known and known[0] is not None and known[0].why == ONE:
        known = [None]  # one of many numbers, not one that is compared: what is validated is valid
    if name in ("all", "any") and known == [None] and out.numel() == 1:
        return Truth(name == "all", f".{name}() of computed values answered {name == 'all'}")
    if not known or None in known:
        return None
    if name in ("sum", "count_nonzero"):
        return None if known[0] is None or known[0].value else known[0]  # none of many: their number is 0
    values, why = [each.value for each in known if each], next((each.why for each in known if each and each.why), "")
    if name in ("logical_not", "bitwise_not"):
        return Truth(not values[0], why)
    return Truth(_JOINED[name](values), why) if name in _JOINED else None


def assumed_of(tensor: torch.Tensor, truths: Truths, read: Read) -> Truth | None:
    """What is assumed of a tensor, or known."""
    if tensor.numel() == 1 and tensor.dtype is torch.bool and (known := read(tensor)) is not None:
        return Truth(bool(known))
    return truths.get(tensor)


def _counted(operand: Any, truths: Truths) -> Truth | None:
    """What is assumed of a number that counts truths, for example how many numbers are not finite."""
    return truths.get(operand) if isinstance(operand, torch.Tensor) and operand.dtype is not torch.bool else None


def _number(operand: Any, truths: Truths, read: Read) -> float | None:
    """A number as it is compared: itself, what is known, 0, or 1. None for a tensor with many elements."""
    if not isinstance(operand, torch.Tensor):
        return operand
    if _counted(operand, truths) and operand.numel() == 1:
        return 0.0
    if operand.numel() != 1:
        return None
    known = read(operand)
    return 1.0 if known is None else known
