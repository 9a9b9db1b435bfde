"""How a loop uses one DataLoader."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from surefoot.checks.engine.types import AnyLoader

_TRAINS = re.compile("train|fit|memory|bank|feature|embed|cluster")
_EVALUATES = re.compile("val|test|eval|dev|hold|held|acc|score|metric|measure|check|report")
"""Names of training and evaluation loaders in loops."""
_MEASURES = re.compile("eval|valid")
"""Names of functions of libraries that measure a model."""


@dataclass
class Seen:
    """How one DataLoader is used."""

    loader: AnyLoader
    passes: int = 0
    batches: int = 0
    updates: int = 0
    evaluations: int = 0
    from_update: int = 0
    """The updates before its first pass, and `until_update` those before its last batch."""
    until_update: int = 0
    epochs: list[int] = field(default_factory=list)
    trainings: set[int] = field(default_factory=set)
    """The trainings that used it for updates or evaluations: a fold, or one of several settings that are tried."""
    first_columns: dict[int, list[set[int]]] = field(default_factory=dict)
    """For each training: the hashes of the columns of the first batch of each pass."""
    only_evaluates: bool = False
    """Its last pass is over and only fed evaluations: later updates are not made from it."""
    leftover: int = 0
    window: int = 1
    goes_on: bool = False
    """An update of the usual size used micro-batches of one pass and of the next."""
    since: int = 0
    """Updates since its last batch that used something of that batch."""
    most_since: int = 0
    held: set[int] = field(default_factory=set)
    """Hashes of the columns of its last batch."""
    entered: list[tuple[int, int, int]] = field(default_factory=list)
    """For first batches of evaluation passes: the update before, the batch's hash, and that of the model's inputs."""
    columns: list[list[int]] = field(default_factory=list)
    """For each batch that was read: the hashes of its columns."""
    given: set[int] = field(default_factory=set)
    """Hashes of the batch columns that were fed to trained models."""
    names: set[str] = field(default_factory=set)
    """The names that the loop has for it, or for its data set."""
    reader: str = ""
    """The function that first reads it."""
    library: str = ""
    """The functions of a library that first read it, as `EvaluationLoop.run`."""
    worked_on: int = 0
    """How many batches were followed by an update, of `until` batches up to the last update."""
    until: int = 0
    fresh: bool = False
    """No update has followed its last batch yet."""
    first_batches: dict[int, list[int]] = field(default_factory=dict)
    """For each training: the hashes of the first batch of each pass."""
    streamed: list[list[int]] = field(default_factory=list)
    """For the first batches of a stream that workers read: the hashes of their samples."""

    @property
    def repeats(self) -> bool:
        """Did every pass start with exactly the same batch, with the same augmentation?"""
        firsts = max(self.first_batches.values(), key=len, default=[])
        return len(firsts) >= 2 and len(set(firsts)) == 1

    @property
    def varies(self) -> bool:
        """Did one batch enter a model with different values? Several views or passes in a row are intended."""
        times = Counter(update for update, _, _ in self.entered)
        alone = [(batch, entered) for update, batch, entered in self.entered if times[update] == 1]
        lone = self.evaluations < 2 * self.batches
        return lone and any(a == b and x != y for a, x in alone for b, y in alone)

    def ends_with_labels(self, targets: set[int]) -> bool:
        """May the last column hold the labels? Not if losses use another column, or a model gets it as input."""
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
        """Does its name, or the library that reads it, say that it evaluates, or has it no name?"""
        return (
            not self.names
            or _MEASURES.search(self.library.lower()) is not None
            or any(map(_EVALUATES.search, map(str.lower, (*self.names, self.reader))))
        )

    @property
    def role(self) -> str:
        if self.updates:
            return "training"
        return "evaluation" if self.evaluations else "unknown"
