"""Bounds: what a caller may name: files below one folder, knobs that lead nowhere else, and a number of steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import RunError
from surefoot.recipe.builtin import builtin_recipes
from surefoot.recipe.kind import split_target

STEPS, SECONDS = 50, 120.0
"""The most steps and seconds of one call, unless whoever starts the server says otherwise."""
_KNOB = re.compile(r"[A-Za-z_][\w.]*=.*", re.DOTALL)
_DEVICE = re.compile(r"[A-Za-z0-9][\w.-]*")
_BETWEEN = re.compile(r"[\s,;:=]+")
"""What separates paths in a value such as `first,second` or `s3://bucket`."""


class Refused(RunError):
    """A caller asked for something outside of the bounds."""


@dataclass(frozen=True)
class Bounds:
    """The folder that the server was started in, and the limits of one call. A caller can change none of them."""

    folder: Path
    steps: int = STEPS
    seconds: float = SECONDS

    def path(self, named: str) -> str:
        """A file or folder below the folder, links followed, as `./sub/train.py`: no option begins with a dot."""
        found = self._resolved(named)
        if not found.exists():
            raise Refused(f"{named!r} does not exist below {self.folder}")
        return f"./{found.relative_to(self.folder).as_posix()}"

    def target(self, named: str) -> str:
        """A built-in recipe, or a file below the folder, perhaps with a function: `./own.py:tiny`.

        `module:function` is refused: it would import whatever is installed.
        """
        if named in builtin_recipes():
            return named
        place, function = split_target(named)
        if function.isidentifier() and place.endswith(".py"):
            return f"{self.path(place)}:{function}"
        return self.path(named)

    def knobs(self, words: Sequence[str]) -> list[str]:
        """Knobs of a recipe. An option is none, and no value may name a place outside of the folder."""
        for word in words:
            if not _KNOB.fullmatch(word):
                raise Refused(f"{word!r} is no knob: write NAME=VALUE, such as layers=12")
            for part in _BETWEEN.split(word.partition("=")[2]):
                self._resolved(part)
        return list(words)

    def device(self, named: str) -> str:
        """The name of a device or of several: `8xh100-sxm`."""
        if not _DEVICE.fullmatch(named):
            raise Refused(f"{named!r} is no device: write for example h100-sxm, 8xh100-sxm or cpu")
        return named

    def within_steps(self, steps: int) -> int:
        """A number of steps that is allowed."""
        if not 1 <= steps <= self.steps:
            raise Refused(
                f"steps={steps} is not between 1 and {self.steps}; whoever starts `surefoot mcp` sets that limit"
            )
        return steps

    def _resolved(self, named: str) -> Path:
        try:
            found = (self.folder / named).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a link to itself, a zero byte
            raise Refused(f"{named!r} is no path: {error}") from error
        if named.startswith("~") or not found.is_relative_to(self.folder):
            raise Refused(f"{named!r} leads out of {self.folder}, where this server was started: name a file below it")
        return found
