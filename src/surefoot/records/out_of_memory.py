"""An out-of-memory error: what held the memory at that moment, the batch, the plan, and settings that would fit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from surefoot.plain_files import write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.explanation import Place

FILE = "out-of-memory.json"
"""Its name in a run directory."""
SNAPSHOT = "out-of-memory.pickle"
"""The name of torch's own snapshot beside it, if a GPU ran out of memory."""
_SPARE = 2**16
"""Bytes that stay free: for the states of random generators and the like, which no plan books."""


@dataclass(frozen=True)
class Held:
    """Bytes that were live: their account, the module that they belong to, and the phase that made them."""

    account: str
    module: str
    phase: str
    bytes: int


@dataclass(frozen=True)
class LiveTensor:
    """One tensor that was live, and the line that made it. Equal tensors made by the same line count together."""

    bytes: int
    """Of all of them."""
    count: int
    account: str
    module: str
    phase: str
    operator: str
    tensor: str
    """Its type and shape: `float32[8, 64]`."""
    kept_steps: int = 0
    """From how many earlier steps they are, if a forward or loss made them and something keeps them."""
    place: Place | None = None


@dataclass(frozen=True)
class Batch:
    """The shapes of the tensors that the model was called with, and how often they came before."""

    shapes: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    """The shapes of most steps before; empty if there was none."""
    steps: int = 0
    """How many steps were taken before."""
    usual_peak_bytes: int | None = None
    """The highest peak of a step with the usual shapes."""
    grows: bool = False
    """Each batch was larger than the one before."""
    made: tuple[Place, ...] = ()
    """The lines that made it, nearest first."""

    @property
    def is_unusual(self) -> bool:
        return bool(self.usual) and self.shapes != self.usual

    @property
    def is_larger(self) -> bool:
        """Whether it has more elements than usual."""
        return self.is_unusual and elements(self.shapes) > elements(self.usual)


def elements(shapes: tuple[str, ...]) -> int:
    """The elements of tensors of these shapes together."""
    sizes = (re.findall(r"\d+", each.partition("[")[2]) for each in shapes)
    return sum(math.prod(map(int, each)) for each in sizes)


@dataclass(frozen=True)
class Keeper:
    """A list or dict of the user's code that keeps tensors of earlier steps, and the lines that add to it."""

    name: str
    count: int
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A setting that was planned. `command` trains with it."""

    knobs: dict[str, str | int | float | bool | None]
    planned_bytes: int
    command: str


@dataclass(frozen=True)
class OutOfMemory:
    """What is known of an out-of-memory error. Numbers that are not known are None.

    `held` is complete if operators were followed (`followed`); else it holds what stays from step to step.
    """

    error: str
    message: str
    asked_bytes: int | None = None
    live_bytes: int | None = None
    limit_bytes: int | None = None
    device: str = "cpu"
    step: int = 0
    """The step that ran, from 1 on; 0 before the first."""
    phase: str = ""
    module: str = ""
    operator: str = ""
    place: Place | None = None
    """The innermost line of user code."""
    followed: bool = False
    held: tuple[Held, ...] = ()
    largest: tuple[LiveTensor, ...] = ()
    batch: Batch = Batch()
    forwards: int = 0
    """How often a model was called with gradients since the last backward or update."""
    forward_places: tuple[Place, ...] = ()
    """The lines that called it."""
    keepers: tuple[Keeper, ...] = ()
    retained: Place | None = None
    """The line of the last backward that kept its graph."""
    outside_bytes: int = 0
    """What was live when the step began and belongs to no step: data sets, batches that are prepared."""
    planned_bytes: int | None = None
    """The peak of the step as planned."""
    planned_batch: str = ""
    """Which batch was planned, if it is not the one of the plan."""
    fits: tuple[Setting, ...] = ()
    """Settings that fit, the one that recomputes least first."""
    beyond: Setting | None = None
    """The next larger setting after the first of `fits`. It was planned, and does not fit."""
    notes: tuple[str, ...] = ()
    run: str = ""
    """The run directory that holds it."""

    @property
    def room_bytes(self) -> int | None:
        """What a step may take beside what is outside of it; None without a limit."""
        return None if self.limit_bytes is None else self.limit_bytes - self.outside_bytes - _SPARE

    def noting(self, *notes: str) -> OutOfMemory:
        """The same, with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def by_account(self) -> dict[str, int]:
        """The live bytes of each account, largest first."""
        return self._by(lambda each: each.account)

    def by_phase(self) -> dict[str, int]:
        """The live bytes by the phase that made them, largest first."""
        return self._by(lambda each: each.phase)

    def by_module(self, account: str) -> dict[str, int]:
        """The live bytes of an account by module, largest first."""
        return self._by(lambda each: each.module if each.account == account else None)

    def _by(self, key: Callable[[Held], str | None]) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for each in self.held:
            name = key(each)
            if name is not None:
                amounts[name] = amounts.get(name, 0) + each.bytes
        return dict(sorted(amounts.items(), key=lambda item: -item[1]))


def write_out_of_memory(folder: Path, record: OutOfMemory) -> None:
    """Writes it to a run directory, in place of an older one."""
    write_whole(folder / FILE, to_json(record) + "\n")


def read_out_of_memory(folder: Path) -> OutOfMemory | None:
    """The one in a run directory, if there is one."""
    file = folder / FILE
    return read_record(OutOfMemory, file) if file.exists() else None
