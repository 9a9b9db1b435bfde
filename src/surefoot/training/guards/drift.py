"""Drift: reports a run that slowly gets worse: memory that creeps up, steps that slow down, waiting for data."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from surefoot.records.log import LogRow
from surefoot.units import bytes_text, seconds_text

WINDOW = 50
"""Steps that are judged together, so that one slow step alone is not reported."""
CREEPING, GROWN = 4, 0.02
"""Memory creeps if it grew in each of so many windows, and by this share over all of them."""
SLOWER, STARVING = 1.25, 0.2
"""Limits: a step takes so many times the best window's step; this share of a window is spent waiting for data."""


class Drift:
    """Call `see` after every step. It yields the kind and text of each new problem, once until the problem ends."""

    def __init__(self) -> None:
        self._rows: list[LogRow] = []
        self._memory: list[float] = []
        self._best: float | None = None
        self._told: set[str] = set()

    def see(self, row: LogRow) -> Iterator[tuple[str, str]]:
        """At the end of a window, yields the problems that have begun."""
        self._rows.append(row)
        if len(self._rows) < WINDOW:
            return
        window, self._rows = self._rows, []
        for kind, text in (
            ("memory-creeping", self._creeping(window)),
            ("slowing", self._slowing(window)),
            ("starving", self._starving(window)),
        ):
            if text and kind not in self._told:
                yield kind, text
            (self._told.add if text else self._told.discard)(kind)

    def _creeping(self, window: list[LogRow]) -> str:
        held = [row.memory_bytes for row in window if row.memory_bytes is not None]
        if not held:
            return ""
        self._memory = [*self._memory[-CREEPING:], median(held)]
        grown = self._memory[-1] - self._memory[0]
        rising = all(later > earlier for earlier, later in zip(self._memory, self._memory[1:], strict=False))
        if len(self._memory) <= CREEPING or not rising or grown < GROWN * self._memory[0]:
            return ""
        each = grown / CREEPING / WINDOW
        grew = f"memory has grown in each of {CREEPING} x {WINDOW} steps"
        return f"{grew}, by {bytes_text(each)} per step, to {bytes_text(held[-1])}"

    def _slowing(self, window: list[LogRow]) -> str:
        seconds = median(row.seconds for row in window)
        self._best = seconds if self._best is None else min(seconds, self._best)
        if seconds < SLOWER * self._best:
            return ""
        times = f"{seconds / self._best:.2f} times the {seconds_text(self._best)}"
        return f"a step takes {seconds_text(seconds)}, {times} of the fastest steps"

    def _starving(self, window: list[LogRow]) -> str:
        share = sum(row.data_seconds for row in window) / max(1e-12, sum(row.seconds for row in window))
        return f"{share:.0%} of the time of the last {WINDOW} steps was waiting for data" if share >= STARVING else ""
