"""Unpickles a file from elsewhere: only with names that the caller allows, and only after a process of its own has.

A few bytes can ask the unpickler for all memory (an index of its memo), for years (the hash of tuples of tuples) or for
a stack overflow (a key of a million nested tuples). Nothing in this process can interrupt it. So a child reads the file
first, with limits on its memory and its seconds, and with a class that does nothing in place of every name.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from surefoot.units import bytes_text, counted

_TIMES, _FLOOR_BYTES = 40, 2**28
"""How many times its size a pickle may take in memory, and what any may take."""
_BYTES_PER_SECOND, _FLOOR_SECONDS = 2**20, 3
"""How slowly a pickle may be read, a tenth of what is usual, and the seconds that any may take."""
_OUT_OF_MEMORY = 3
_CHILD = f"""
import pickle, sys
try:
    import resource
    memory, seconds = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, OSError, ValueError):
    pass
class Nothing:
    def __new__(cls, *arguments):
        made = object.__new__(cls)
        made.arguments = arguments
        for each in arguments:
            try:
                hash(each)
            except TypeError:
                pass
        return made
    def __init__(self, *arguments):
        pass
    def __hash__(self):
        return hash(tuple(vars(self).values()))
    def __eq__(self, other):
        return vars(self) == vars(other)
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return Nothing
try:
    Unpickler(sys.stdin.buffer).load()
except MemoryError:
    sys.exit({_OUT_OF_MEMORY})
except BaseException:
    pass
"""
"""Ends with 0 also if the pickle is no pickle: then the reader says why. Objects are hashed and compared by all that
they hold, as data classes are, so that keys cost in the child what they cost in the reader."""


class PickleBomb(Exception):
    """What a pickle would take, as the rest of a sentence that begins with its name."""


def load_pickle(opened: BinaryIO, find_class: Callable[[str, str], Any]) -> Any:
    """What a file holds, made only with what `find_class` returns for a module and a name. Raises what it raises."""
    _try_elsewhere(opened)
    opened.seek(0)
    return _Unpickler(opened, find_class).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, opened: BinaryIO, find_class: Callable[[str, str], Any]) -> None:
        super().__init__(opened)
        self._find = find_class

    def find_class(self, module: str, name: str) -> Any:
        return self._find(module, name)

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside of it")


def _try_elsewhere(opened: BinaryIO) -> None:
    size = os.fstat(opened.fileno()).st_size
    memory, seconds = _TIMES * size + _FLOOR_BYTES, size // _BYTES_PER_SECOND + _FLOOR_SECONDS
    command = [sys.executable, "-I", "-S", "-c", _CHILD, str(memory), str(seconds)]
    nowhere = subprocess.DEVNULL
    code = subprocess.run(command, stdin=opened, stdout=nowhere, stderr=nowhere, check=False).returncode
    if code == _OUT_OF_MEMORY:
        raise PickleBomb(f"has {bytes_text(size)} and takes more than {bytes_text(memory)} of memory to unpickle")
    if code != 0:
        raise PickleBomb(
            f"has {bytes_text(size)} and cannot be unpickled in {counted(seconds, 'second')} without a crash"
        )
