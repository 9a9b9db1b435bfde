"""Beats: every rank reports that it is alive and what it is doing, so that a rank that hangs can be named.

A thread of each rank samples the main thread twenty times a second. Once a second it writes a line to torchrun's
store: a counter, the step, the collective that the main thread is in, and its line of the user's code. A stopped
process writes no more lines. A process that hangs in a collective names it. The share of samples outside of any
collective shows which rank the others wait for.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from torch.distributed import Store

from surefoot.world.user_line import where
from surefoot.world.waits import BACKWARD, COLLECTIVE_FILES

if TYPE_CHECKING:
    from typing_extensions import Self

LOOK_SECONDS = 0.05
LOOKS = 20
"""Samples of the main thread per line."""
WAITS = {
    BACKWARD: "backward",
    ("checkpoint/store.py", "_finish"): "a checkpoint",
    ("surefoot/events/rank_notes.py", "told"): "an exchange of notes",
}
"""Other places where a rank waits for others, by file and function."""


class Beat(NamedTuple):
    """The last line of a rank: its counter, its step, and the collective it was in, or an empty string."""

    number: int
    step: int
    place: str
    line: str = ""
    """` at data.py:12`: the user's code that it was in, or an empty string."""


class Waiting(NamedTuple):
    """Why ranks wait, in words, and the first rank that is alive to report it."""

    text: str = ""
    teller: int = 0


class Beats:
    """Writes the beats of one rank and reads those of the others. Without a store it does nothing."""

    def __init__(self, store: Store | None, *, rank: int, ranks: int) -> None:
        self.store, self.rank, self.ranks = store, rank, ranks
        self.step = 0
        self._count = self._looks = self._own = 0
        self._main = threading.main_thread().ident or 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="surefoot-beats", daemon=True)

    def __enter__(self) -> Self:
        if self.store is not None:
            self._write()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def own_share(self) -> float:
        """The share of samples since the last call that found the main thread outside of any collective."""
        looks, own, self._looks, self._own = self._looks, self._own, 0, 0
        return own / looks if looks else 0.0

    def _beat(self) -> None:
        turn = 0
        while not self._stop.wait(LOOK_SECONDS):
            frame = sys._current_frames().get(self._main)
            place = place_of(frame)
            self._looks, self._own, turn = self._looks + 1, self._own + (not place), turn + 1
            if turn % LOOKS == 0:
                self._write(place, where(frame) if frame else "")
            del frame  # it would keep the tensors of that moment

    def _write(self, place: str = "", line: str = "") -> None:
        assert self.store is not None
        self._count += 1
        try:
            self.store.set(str(self.rank), f"{self._count} {self.step} {place}\n{line}")
        except RuntimeError:  # the store is gone: the run is ending
            self._stop.set()

    def explain(self, *, patience: float = 3.0) -> Waiting:
        """Names the rank that the others wait for, and the collective. The text is empty if that is unknown."""
        if self.store is None or self.ranks == 1:
            return Waiting()
        try:
            before = self._read()
            time.sleep(patience)
            now = self._read()
        except RuntimeError:
            return Waiting()
        return waiting(before, now, reader=self.rank)

    def _read(self) -> list[Beat]:
        assert self.store is not None
        lines = self.store.multi_get([str(rank) for rank in range(self.ranks)])
        parts = (line.decode().split(" ", 2) for line in lines)
        return [Beat(int(count), int(step), *place.split("\n")) for count, step, place in parts]


def waiting(before: list[Beat], now: list[Beat], *, reader: int = -1) -> Waiting:
    """Names the ranks that keep others waiting: those that stopped writing, or else those in no collective."""
    silent = [rank for rank, was in enumerate(before) if was.number == now[rank].number and rank != reader]
    living = [rank for rank in range(len(now)) if rank not in silent]
    places = sorted({now[rank].place for rank in living if now[rank].place})
    late = silent or [rank for rank in living if not now[rank].place]
    wait = f"wait in {', '.join(places)}" if places else ""
    if not silent and not (late and places):
        return Waiting(wait and f"all ranks {wait}", living[0])
    fault = "has not responded" if silent else "is in no collective"
    which, step = ", ".join(map(str, late)), min(now[rank].step for rank in late)
    seen = next((now[rank].line for rank in late if now[rank].line), "")
    return Waiting(
        f"rank {which} {fault} since step {step}{seen and f', last seen{seen}'}" + (wait and f"; the others {wait}"),
        living[0],
    )


def place_of(frame: FrameType | None) -> str:
    """The collective or other wait that a thread is in, by the names of its functions; empty if it is in none."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(COLLECTIVE_FILES):
            return frame.f_code.co_name
        for (file, function), place in WAITS.items():
            if frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file):
                return place
        frame = frame.f_back
    return ""
