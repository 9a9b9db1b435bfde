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
    """Elements that the model did not get, of tensors for which the file has one of the same shape."""
    detail: str = ""


@dataclass(slots=True)
class Resumption:
    """A counter in a file that training went on from."""

    where: str
    counter: str
    loaded: int
    saved: int | None = None
    """What the next file says, and what it would say if every update since had been counted once."""
    expected: int | None = None
    in_epoch: int = 0
    """Updates of an unfinished pass over the data, by a counter of updates."""
    skipped: int = 0
    """Batches that were passed over before the first forward."""


@dataclass(slots=True)
class HeldCounter:
    """A counter in a file, and the attribute of an object that goes on with another number than it was saved with."""

    where: str
    counter: str
    loaded: int
    attribute: str
    held: int
    """What the attribute is in the first update after the file, and what it would be without the stop."""
    expected: int


@dataclass(slots=True)
class LostState:
    """The state of a random generator in a file that training went on from; nothing reads it, and it is drawn from."""

    where: str
    key: str
    whose: str
    """torch, random, numpy.random, or how the source calls the generator"""


@dataclass(frozen=True, slots=True)
class SavedStateFacts:
    """All facts of this subject."""

    files: tuple[File, ...] = ()
    resumptions: tuple[Resumption, ...] = ()
    held_counters: tuple[HeldCounter, ...] = ()
    lost_states: tuple[LostState, ...] = ()
    lost_attributes: tuple[str, ...] = ()
    """Attributes of a model that changed, that its loss depends on, and that no checkpoint holds."""
    unstable_samples: tuple[int, int] = (0, 0)
    """So many samples changed when they were read again with the same random numbers, of so many."""
