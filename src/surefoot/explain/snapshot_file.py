"""Reads a memory snapshot that torch has pickled, without running anything that the file names.

torch writes dicts, lists, tuples, numbers and texts. A pickle that asks for any class or function is refused before
that is looked up. What reading may take of memory is bounded by the size of the file.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from surefoot.errors import RunError
from surefoot.records.units import bytes_text

MOST_BYTES = 4 * 2**30
"""The largest file that is read."""
_TIMES, _FLOOR = 40, 2**30
"""How many times its size a pickle may take in memory, and what any may take."""


def read_snapshot(file: Path) -> dict[str, Any]:
    """The dictionary in a snapshot. Refuses with one sentence what is not one."""
    if not file.is_file():
        raise RunError(f"no snapshot {file}")
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise RunError(
            f"{file} has {bytes_text(size)}, more than the {bytes_text(MOST_BYTES)} that are read; record fewer "
            "entries: torch.cuda.memory._record_memory_history(max_entries=100_000)"
        )
    try:
        with file.open("rb") as opened, _at_most(_TIMES * size + _FLOOR):
            found = _Plain(opened, file).load()
    except RunError:
        raise
    except MemoryError:
        raise RunError(f"{file} takes far more memory than a snapshot of its size: it is not one") from None
    except Exception as error:
        raise RunError(f"{file} is not a pickled memory snapshot: {type(error).__name__}: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise RunError(
            f"{file} is not a memory snapshot: it has no list of segments; "
            "torch.cuda.memory._dump_snapshot(file) writes one"
        )
    return found


class _Plain(pickle.Unpickler):
    """Admits containers, numbers and texts only."""

    def __init__(self, opened: BinaryIO, file: Path) -> None:
        super().__init__(opened)
        self._file = file

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RunError(
            f"{self._file} is refused: it asks to load {module}.{name}, and a memory snapshot holds only numbers, "
            "texts and lists of them; nothing of it was run"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise RunError(f"{self._file} is refused: it refers to objects outside of it; nothing of it was run")


@contextmanager
def _at_most(more_bytes: int) -> Iterator[None]:
    """Lets this process take at most so many bytes more. A pickle of a few bytes could ask for all memory."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError):  # not Linux: Python raises MemoryError only when the system refuses
        yield
        return
    wanted = used + more_bytes
    least = wanted if before[0] == resource.RLIM_INFINITY else min(wanted, before[0])
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (least, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
