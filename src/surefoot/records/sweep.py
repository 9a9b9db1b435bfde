"""A sweep: trials of one recipe with different knobs, each planned before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from surefoot.plain_files import write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.search import Budget

FILE = "sweep.json"
"""The record in the folder of a sweep."""
State = Literal["finished", "stopped early", "pruned by the plan", "refused", "failed"]
"""`refused` settings make no recipe, `failed` ones end their training with an error."""
Knobs = dict[str, str | int | float | bool | None]


@dataclass(frozen=True)
class SweepTrial:
    """One setting: what was planned, and what became of it."""

    number: int
    knobs: Knobs
    """Those that the sweep chose."""
    state: State
    value: float | None = None
    """What the sweep compares, of the last evaluation."""
    reason: str = ""
    steps: int = 0
    seconds: float = 0.0
    memory_bytes: float | None = None
    """What the plan counts against the limit."""
    days: float | None = None
    dollars: float | None = None
    run: str = ""
    """The run directory. Empty if nothing ran."""
    at: tuple[int, ...] = ()
    """The steps after which it was compared with other trials."""
    values: tuple[float, ...] = ()
    """What was compared then."""


@dataclass(frozen=True)
class Sweep:
    """A sweep as far as it has come. With the same words, seed and limits it makes the same trials again."""

    path: str
    target: str
    words: tuple[str, ...]
    best: str
    """The metric, with - before it if lower is better."""
    seed: int
    early_stopping: bool
    on: str | None = None
    budget: Budget = Budget()
    fixed: Knobs = field(default_factory=dict)
    """The knobs that all trials share, as the first recipe kept them."""
    trials: tuple[SweepTrial, ...] = ()

    @property
    def lower_is_better(self) -> bool:
        return self.best.startswith("-")

    @property
    def metric(self) -> str:
        return self.best.removeprefix("-")

    def ranked(self) -> list[SweepTrial]:
        """Finished trials, best first; then those that were stopped; then those that never ran."""
        sign = 1 if self.lower_is_better else -1
        order = {"finished": 0, "stopped early": 1}

        def place(trial: SweepTrial) -> tuple[int, bool, float, int]:
            known = trial.value is not None and trial.value == trial.value
            return order.get(trial.state, 2), not known, sign * (trial.value or 0.0) if known else 0.0, trial.number

        return sorted(self.trials, key=place)

    @property
    def winner(self) -> SweepTrial | None:
        """The best finished trial."""
        first = next(iter(self.ranked()), None)
        return first if first is not None and first.state == "finished" else None


def write_sweep(sweep: Sweep) -> None:
    """Keeps the record in the folder of the sweep, whole or not at all."""
    write_whole(Path(sweep.path) / FILE, to_json(sweep) + "\n", shared=True)


def read_sweep(folder: Path) -> Sweep | None:
    """The record in a folder; None if it holds none."""
    return read_record(Sweep, folder / FILE) if (folder / FILE).exists() else None
