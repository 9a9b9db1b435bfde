"""How a loop uses one DataLoader."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from surefoot.checks.engine.types import AnyLoader

_TRAINS = re.compile("train|fit|memory|bank|feature|embed|cluster")
_EVALUATES = re.compile("val|test|eval|dev|hold|held|acc|score|metric|measure|check|report")
"""What loops call the loaders that they read."""


@dataclass
class Seen:
    """One DataLoader as it is used."""

    loader: AnyLoader
    passes: int = 0
    batches: int = 0
    updates: int = 0
    evaluations: int = 0
    epochs: list[int] = field(default_factory=list)
    trainings: set[int] = field(default_factory=set)
    """Those in which updates or evaluations were made from it: a fold, or one of several settings that are tried."""
    first_columns: dict[int, list[set[int]]] = field(default_factory=dict)
    """Of each training: hashes of what the first batches of its passes hold, column by column."""
    only_evaluates: bool = False
    """Its last pass is over and fed evaluations alone: updates that follow are not made from it."""
    leftover: int = 0
    window: int = 1
    goes_on: bool = False
    """An update was made of as many micro-batches as ever, some of them of one pass and some of the next."""
    since: int = 0
    """Updates since its last batch that were given something of that batch."""
    most_since: int = 0
    held: set[int] = field(default_factory=set)
    """Hashes of what its last batch holds."""
    entered: list[tuple[int, int, int]] = field(default_factory=list)
    """Of the first batches of evaluation passes: the update before, their hash, and that of what entered the model."""
    columns: list[list[int]] = field(default_factory=list)
    """Of batches that were read: the hashes of their columns."""
    given: set[int] = field(default_factory=set)
    """Hashes of what of them entered models that were trained."""
    names: set[str] = field(default_factory=set)
    """What the loop calls it, or its data set."""
    reader: str = ""
    """The function that reads it first."""
    worked_on: int = 0
    """Batches that updates followed, of so many until the last update."""
    until: int = 0
    fresh: bool = False
    """No update has followed its last batch yet."""
    first_batches: dict[int, list[int]] = field(default_factory=dict)
    """Of each training: hashes of the first batches of its passes."""
    streamed: list[list[int]] = field(default_factory=list)
    """Of the first batches of a stream that workers read: hashes of their samples."""

    @property
    def repeats(self) -> bool:
        """Did every pass begin with the very same batch, augmented alike?"""
        firsts = max(self.first_batches.values(), key=len, default=[])
        return len(firsts) >= 2 and len(set(firsts)) == 1

    @property
    def varies(self) -> bool:
        """Did one batch enter a model in two ways? Several views of a batch, or passes in a row, are a measurement."""
        times = Counter(update for update, _, _ in self.entered)
        alone = [(batch, entered) for update, batch, entered in self.entered if times[update] == 1]
        lone = self.evaluations < 2 * self.batches
        return lone and any(a == b and x != y for a, x in alone for b, y in alone)

    def ends_with_labels(self, targets: set[int]) -> bool:
        """May the last column be what losses ask for? Not where they ask for another one, or a model is given it."""
        last = {each[-1] for each in self.columns if each}
        if not targets.isdisjoint(last):
            return True
        others = {print_ for each in self.columns for print_ in each[:-1]}
        return targets.isdisjoint(others) and (not targets or last.isdisjoint(self.given))

    @property
    def trains_by_name(self) -> bool:
        return any(map(_TRAINS.search, map(str.lower, self.names)))

    @property
    def evaluates_by_name(self) -> bool:
        """Or has it no name that could say so?"""
        return not self.names or any(map(_EVALUATES.search, map(str.lower, (*self.names, self.reader))))

    @property
    def role(self) -> str:
        if self.updates:
            return "training"
        return "evaluation" if self.evaluations else "unknown"
