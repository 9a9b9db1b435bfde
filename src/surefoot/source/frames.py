"""The variables of a running frame."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any


def variables(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables. Before Python 3.13 `f_locals` keeps them alive until it is cleared."""
    found = frame.f_locals
    copied = dict(found)
    if type(found) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        found.clear()
    return copied
