"""Reads a memory snapshot that torch has pickled, without running anything that the file names.

torch writes dicts, lists, tuples, numbers and texts. A pickle that asks for any class or function is refused before
that is looked up. What reading may take of memory and of time is bounded by the size of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from surefoot.checkpoint.pickled import PickleBomb, load_pickle
from surefoot.errors import RunError
from surefoot.units import bytes_text

MOST_BYTES = 4 * 2**30
"""The largest file that is read."""


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
        with file.open("rb") as opened:
            found = load_pickle(opened, _no_class)
    except RunError as error:
        raise RunError(f"{file} is refused: {error}") from None
    except PickleBomb as error:
        raise RunError(f"{file} {error}: it is not a memory snapshot") from None
    except Exception as error:
        raise RunError(f"{file} is not a pickled memory snapshot: {type(error).__name__}: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise RunError(
            f"{file} is not a memory snapshot: it has no list of segments; "
            "torch.cuda.memory._dump_snapshot(file) writes one"
        )
    return found


def _no_class(module: str, name: str) -> NoReturn:
    raise RunError(
        f"it asks to load {module}.{name}, and a memory snapshot holds only numbers, texts and lists of them; nothing "
        "of it was run"
    )
