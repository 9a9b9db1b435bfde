"""A trace: every operation of a step in order, each with a fingerprint of its results."""

from dataclasses import dataclass, field
from difflib import SequenceMatcher

WINDOW = 2000
"""How many operations are aligned where two traces begin to run other operations."""


@dataclass(frozen=True)
class Operation:
    """One operation: what it computed, for which module, and the line of user code that asked for it."""

    phase: str
    """forward, loss or backward; evaluate for a forward without gradients."""
    module: str
    name: str
    line: str
    """As `file.py:12`. That of the forward in a backward; empty if no user code asked for it."""
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    prints: tuple[str, ...]
    """The hash of all bytes of each result."""
    given: tuple[str, ...] = ()
    """The same of each tensor that it was given, without those that it wrote in place."""

    @property
    def key(self) -> tuple[object, ...]:
        """Operations of two traces with the same key do the same thing."""
        return self.phase, self.module, self.name, self.shapes


@dataclass(frozen=True)
class Trace:
    """One step of a model: fingerprints of its parameters before the step, of its inputs, and of its operations."""

    step: int
    parameters: dict[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    """Of the tensors that models were called with."""
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Parting:
    """Where two traces part: the places of the first operation of both whose results differ.

    `only_first` and `only_second` are operations before it that only one of the two ran.
    """

    first: int | None
    second: int | None
    only_first: tuple[Operation, ...] = ()
    only_second: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Traced:
    """The first updates of a script. The last trace holds only the parameters after them."""

    script: str
    traces: tuple[Trace, ...]

    @property
    def updates(self) -> int:
        return max(0, len(self.traces) - 1)


def parting(one: Trace, other: Trace) -> Parting | None:
    """Where the operations of two traces part. None if all that both run have the same results."""
    first, second = one.operations, other.operations
    for place, (here, there) in enumerate(zip(first, second, strict=False)):
        if here.key != there.key:
            return _realigned(first, second, place)
        if here.prints != there.prints:
            return Parting(place, place)
    return _realigned(first, second, min(len(first), len(second))) if len(first) != len(second) else None


def _realigned(first: tuple[Operation, ...], second: tuple[Operation, ...], place: int) -> Parting | None:
    """Goes on where the traces run other operations: pairs up those that both run, in order."""
    here, there = first[place : place + WINDOW], second[place : place + WINDOW]
    blocks = SequenceMatcher(None, [each.key for each in here], [each.key for each in there], autojunk=False)
    only: tuple[list[Operation], list[Operation]] = [], []
    at = [0, 0]
    for one, two, size in blocks.get_matching_blocks():
        only[0].extend(here[at[0] : one])
        only[1].extend(there[at[1] : two])
        for step in range(size):
            if here[one + step].prints != there[two + step].prints:
                return Parting(place + one + step, place + two + step, tuple(only[0]), tuple(only[1]))
        at = [one + size, two + size]
    return Parting(None, None, tuple(only[0]), tuple(only[1])) if only[0] or only[1] else None
