"""Finds images whose channels are reshaped as if they were rows."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode

from surefoot.checks.engine.types import Function
from surefoot.checks.facts.models import Crossing
from surefoot.checks.loop.crossed_dimensions import VIEWS, size_text, takes_colours_for_rows
from surefoot.events.callers import caller


def crossing_of(reader: Any) -> Crossing | None:
    """The first such view while a sample is read; None if there is none."""
    with _Heard() as heard:
        reader[0]
    return heard.crossing


class _Heard(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.crossing: Crossing | None = None

    def __torch_function__(self, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in VIEWS and takes_colours_for_rows(tuple(args[0].shape), tuple(out.shape)):
            seen = f"{size_text(args[0].shape)} as {size_text(out.shape)}"
            self.crossing = self.crossing or Crossing("view", caller() or "the data set", seen)
        return out
