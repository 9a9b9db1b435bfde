"""Beats: every rank tells the others that it lives, and where it stands; one that hangs can be named.

A thread of each rank looks at its main thread twenty times a second. Once a second it writes to torchrun's store how
often it has, the step, and the collective that its main thread is in. A stopped process writes no more; one that hangs
in a collective says in which. The share of looks that find no collective tells which rank the others wait for.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import NamedTuple, Self

from torch.distributed import Store

LOOK_SECONDS = 0.05
LOOKS = 20
"""So many looks to a line."""
_COLLECTIVE = ("distributed_c10d.py", "_functional_collectives.py", "_fsdp_collectives.py")
WAITS = {
    ("graph.py", "_engine_run_backward"): "backward",
    ("checkpoint/store.py", "_finish"): "a checkpoint",
    ("surefoot/events/rank_notes.py", "told"): "an exchange of notes",
}
"""Where else a rank waits for others, by file and function."""


class Beat(NamedTuple):
    """The last line of a rank: the how manieth, its step, and the collective it was in, if any."""

    number: int
    step: int
    place: str


class Waiting(NamedTuple):
    """Why ranks wait, in words, and the first rank that lives to tell."""

    text: str = ""
    teller: int = 0


class Beats:
    """The beats of one rank, and what the others' tell. Without a store, all stays silent."""

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
        """Of the looks since this was last asked, those that found the main thread at work of its own."""
        looks, own, self._looks, self._own = self._looks, self._own, 0, 0
        return own / looks if looks else 0.0

    def _beat(self) -> None:
        turn = 0
        while not self._stop.wait(LOOK_SECONDS):
            place = place_of(sys._current_frames().get(self._main))
            self._looks, self._own, turn = self._looks + 1, self._own + (not place), turn + 1
            if turn % LOOKS == 0:
                self._write(place)

    def _write(self, place: str = "") -> None:
        assert self.store is not None
        self._count += 1
        try:
            self.store.set(str(self.rank), f"{self._count} {self.step} {place}")
        except RuntimeError:  # the store has gone: the run is ending
            self._stop.set()

    def explain(self, *, patience: float = 3.0) -> Waiting:
        """Which rank the others wait for, and in what; nothing where that cannot be told."""
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
        return [Beat(int(count), int(step), place) for count, step, place in parts]


def waiting(before: list[Beat], now: list[Beat], *, reader: int = -1) -> Waiting:
    """Who keeps the others waiting: those that write no more, else those that are in no collective while others are."""
    silent = [rank for rank, was in enumerate(before) if was.number == now[rank].number and rank != reader]
    living = [rank for rank in range(len(now)) if rank not in silent]
    places = sorted({now[rank].place for rank in living if now[rank].place})
    late = silent or [rank for rank in living if not now[rank].place]
    wait = f"wait in {', '.join(places)}" if places else ""
    if not silent and not (late and places):
        return Waiting(wait and f"all ranks {wait}", living[0])
    fault = "gives no sign of life" if silent else "is in no collective"
    which, step = ", ".join(map(str, late)), min(now[rank].step for rank in late)
    return Waiting(f"rank {which} {fault} since step {step}" + (wait and f"; the others {wait}"), living[0])


def place_of(frame: FrameType | None) -> str:
    """The collective or other wait that a thread is in, by the names of its functions; empty if it is in none."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(_COLLECTIVE):
            return frame.f_code.co_name
        for (file, function), place in WAITS.items():
            if frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file):
                return place
        frame = frame.f_back
    return ""
