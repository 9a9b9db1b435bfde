"""Names the rank that was lost, when a collective fails because another process is gone.

A rank that raises leaves a note in torchrun's store before it closes its connections. A rank that is gone without a
note was killed. With more than two ranks, those that have not noticed yet are told from it by their beats.
"""

from __future__ import annotations

import time
from contextlib import suppress

from torch.distributed import Store

from surefoot.errors import RankLost, first_line

SECONDS = 3.0
"""How long to wait for signs of life of other ranks. They beat once a second."""
_GONE = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "remote process exiting prematurely",
)
"""What gloo and NCCL say of a process that is gone."""
_BACKENDS = ("gloo", "NCCL", "nccl")


def says_gone(error: BaseException | None) -> str:
    """What the backend of the collectives said of a rank that is gone; empty if the error is about something else."""
    while error is not None:
        text = str(error)
        if isinstance(error, RuntimeError) and any(name in text for name in _BACKENDS):
            return next((each for each in _GONE if each in text), "")
        error = error.__cause__ or error.__context__
    return ""


def leave(store: Store | None, rank: int, error: BaseException) -> None:
    """Leaves a note for the other ranks, before they see that this one is gone."""
    if store is not None:
        said = "" if says_gone(error) else first_line(error)
        with suppress(RuntimeError):  # the store is gone too
            store.set(f"left/{rank}", said)


def lost(
    store: Store | None, error: BaseException, *, rank: int, ranks: int, step: int | None = None
) -> RankLost | None:
    """The error to raise in place of a collective's, if that one failed because a rank is gone. None if it did not."""
    said = "" if isinstance(error, RankLost) else says_gone(error)
    if not said:
        return None
    others = [each for each in range(ranks) if each != rank]
    silent, left = others, dict[int, str]()
    if store is not None:
        with suppress(RuntimeError):
            silent, left = _missing(store, others)
    found = RankLost(_text(silent, left, others, said, step))
    found.killed = not left
    found.told = rank != min({*others, rank} - {*silent, *left})
    return found


def _missing(store: Store, others: list[int]) -> tuple[list[int], dict[int, str]]:
    """The ranks that gave no sign of life, and those that ended with an error of their own, with that error."""
    silent, before, until = others, dict[int, str | None](), time.monotonic() + SECONDS
    while True:
        notes = {each: _read(store, f"left/{each}") for each in others}
        left = {each: note for each, note in notes.items() if note}
        beats = {each: _read(store, str(each)) for each in others}
        before = before or beats
        silent = [each for each in silent if notes[each] is None and beats[each] == before[each]]
        if left or len(silent) <= 1 or time.monotonic() > until:
            return silent, left
        time.sleep(0.1)


def _read(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def _text(silent: list[int], left: dict[int, str], others: list[int], said: str, step: int | None) -> str:
    when = "" if step is None else f" in step {step}"
    again = "run the same command again, or give torchrun --max-restarts: it resumes from the last checkpoint"
    if left:
        which = "; ".join(f"rank {each} ended{when} with {note}" for each, note in left.items())
        return f"{which}; look for its own message above"
    if not silent or (len(silent) == len(others) > 1):
        return f"another rank was lost{when}, and torch does not say which ({said}); {again}"
    which = f"rank {silent[0]} was" if len(silent) == 1 else f"ranks {', '.join(map(str, silent))} were"
    return (
        f"{which} lost{when}: {said}, and no error was raised there, so a signal ended it: 9 if memory ran out, 6 if "
        f"ranks called different collectives; torchrun's summary names the signal; {again}"
    )
