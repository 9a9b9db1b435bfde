"""Saved state: files, resumptions, and what they lack."""

from dataclasses import dataclass


@dataclass(slots=True)
class File:
    """A saved or loaded state."""

    kind: str
    """loose-load, unused-load, alias, module, wrapper-names, unrestored-optimizer, unrestored-scheduler,
    forgotten-moments, without-optimizer or without-buffers"""
    where: str
    matched: int = 0
    wanted: int = 0
    found: int = 0
    misnamed: int = 0
    """The number of elements in tensors that the model did not load although the file has one of the same shape."""
    detail: str = ""


@dataclass(slots=True)
class Resumption:
    """A counter in a file from which training resumed."""

    where: str
    counter: str
    loaded: int
    saved: int | None = None
    """The counter in the next file. `expected` is its value if every update since had been counted once."""
    expected: int | None = None
    in_epoch: int = 0
    """By a counter of updates: the updates of an unfinished pass over the data."""
    skipped: int = 0
    """Batches that were skipped before the first forward."""


@dataclass(slots=True)
class HeldCounter:
    """A counter in a file, and an attribute of an object that resumes with a different number."""

    where: str
    counter: str
    loaded: int
    attribute: str
    held: int
    """The attribute in the first update after loading. `expected` is its value without the interruption."""
    expected: int


@dataclass(slots=True)
class LostState:
    """A random generator's state in a file from which training resumed. Nothing restores it, and the loop uses the
    generator.
    """

    where: str
    key: str
    whose: str
    """One of "torch", "random", "numpy.random", or the name of the generator in the source"""


@dataclass(frozen=True, slots=True)
class SavedStateFacts:
    """All facts of this subject."""

    files: tuple[File, ...] = ()
    resumptions: tuple[Resumption, ...] = ()
    held_counters: tuple[HeldCounter, ...] = ()
    lost_states: tuple[LostState, ...] = ()
    lost_attributes: tuple[str, ...] = ()
    """Attributes of a model that changed, that affect its loss, and that no checkpoint holds."""
    unstable_samples: tuple[int, int] = (0, 0)
    """How many samples changed when they were read again with the same random numbers, and how many were read."""
