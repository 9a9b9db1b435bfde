"""Interval: when the next checkpoint is due, by steps, minutes or tokens."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.errors import RecipeError

_UNITS = {
    "step": ("steps", 1), "steps": ("steps", 1),
    "token": ("tokens", 1), "tokens": ("tokens", 1),
    "s": ("seconds", 1), "min": ("seconds", 60), "minute": ("seconds", 60), "minutes": ("seconds", 60),
    "h": ("seconds", 3600), "hour": ("seconds", 3600), "hours": ("seconds", 3600),
}  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    steps: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Interval:
    """An amount of steps, tokens or seconds."""

    amount: float
    unit: str

    @classmethod
    def read(cls, text: str | int) -> Interval:
        """Parses `500`, `"500 steps"`, `"10 min"`, `"2 h"` or `"1e9 tokens"`."""
        words = str(text).split()
        unit = words[1] if len(words) == 2 else "steps"
        try:
            amount = float(words[0])
            name, factor = _UNITS[unit]
        except (ValueError, KeyError, IndexError):
            raise RecipeError(
                f'save_every={text!r} is not an interval; write 500, "10 min", "2 h" or "1e9 tokens"'
            ) from None
        if not 0 < amount < float("inf") or len(words) > 2:
            raise RecipeError(f"save_every={text!r} must be above 0")
        return cls(amount * factor, name)

    def due(self, last: Progress, now: Progress) -> bool:
        """Whether this amount has passed since `last`."""
        return bool(getattr(now, self.unit) - getattr(last, self.unit) >= self.amount)
