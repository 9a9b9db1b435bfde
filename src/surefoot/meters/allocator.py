"""Measures the bytes torch really asked its allocator for: the truth for plans and profiles.

`allocator.cpp` counts at torch's CPU allocator: every requested byte, without rounding, including temporary memory
of kernels. It needs a C++ compiler once. The built library is cached, and loaded only if nobody but this user and
root could have changed it.

Memory outside of torch's allocator (Python's heap, MKL's buffers, thread stacks) is not counted.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils import cpp_extension

from surefoot.errors import WorldError
from surefoot.plain_files import only_our_folder, only_ours

SOURCE = Path(__file__).with_suffix(".cpp")


def available() -> bool:
    """Whether the counter is available: it was built before, or a compiler can build it."""
    return sys.platform != "win32" and (only_ours(_library()) or compiler() is not None)


def compiler() -> str | None:
    """The C++ compiler that would build the counter."""
    wanted = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((path for path in map(shutil.which, filter(None, wanted)) if path), None)


def install() -> None:
    """Starts counting. Memory allocated before is not counted and is freed as usual."""
    if _counter().surefoot_install():
        raise WorldError(
            "something replaced torch's CPU allocator with one that surefoot cannot wrap; "
            "call install() before whatever replaces it"
        )


def uninstall() -> None:
    """Stops counting new tensors. Tensors that were counted are still subtracted when they are freed."""
    _counter().surefoot_uninstall()


def live_bytes() -> int:
    """Bytes allocated since `install()` and not yet freed."""
    return int(_counter().surefoot_live_bytes())


def peak_bytes() -> int:
    """The most bytes that were live at once since the last `reset_peak()`."""
    return int(_counter().surefoot_peak_bytes())


def reset_peak() -> None:
    """Resets the peak to the bytes that are live now."""
    _counter().surefoot_reset_peak()


class Refusal(NamedTuple):
    """The last allocation that the limit refused: the bytes that were asked for, and those that were live."""

    asked_bytes: int
    live_bytes: int


def limit(most_bytes: int | None) -> None:
    """Refuses every allocation that would raise `live_bytes()` above a limit, by `torch.OutOfMemoryError`.

    None lifts the limit. Forked processes, such as the workers of a loader, have none.
    """
    _counter().surefoot_limit(-1 if most_bytes is None else most_bytes)


def refusal() -> Refusal | None:
    """The last allocation that a limit refused in this process."""
    asked = int(_counter().surefoot_refused_bytes())
    return Refusal(asked, int(_counter().surefoot_live_bytes_at_refusal())) if asked else None


@contextmanager
def aside() -> Iterator[None]:
    """What this thread allocates inside is neither counted nor limited: it belongs to surefoot, not to the training."""
    _counter().surefoot_aside(1)
    try:
        yield
    finally:
        _counter().surefoot_aside(-1)


@functools.cache
def _counter() -> ctypes.CDLL:
    library = _library()
    if not only_ours(library):
        library = _build(library.name)
    try:
        counter = ctypes.CDLL(str(library))
    except OSError as error:
        raise WorldError(f"cannot load {library}: {error}; delete it, and surefoot builds it again") from error
    numbers = ("live_bytes", "peak_bytes", "refused_bytes", "live_bytes_at_refusal")
    for name in numbers:
        getattr(counter, f"surefoot_{name}").restype = ctypes.c_int64
    counter.surefoot_limit.argtypes = [ctypes.c_int64]
    return counter


def _library() -> Path:
    """The file of the built counter: one for each torch version and each version of the source."""
    source = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return _cache() / f"allocator-{torch.__version__}-{source}.so"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "surefoot"


def _own_folder() -> Path:
    """The user's cache, closed to others. If that fails, a private folder that is removed with this process."""
    cache = _cache()
    with suppress(OSError):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not cache.is_symlink():
            cache.chmod(0o700)
    if only_our_folder(cache):
        return cache
    private = Path(tempfile.mkdtemp(prefix="surefoot-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return private


def _build(name: str) -> Path:
    found = compiler()
    if found is None:
        raise WorldError("surefoot needs a C++ compiler once, to count torch's allocations; install g++ or set CXX")
    library = _own_folder() / name
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder) / name
        run = subprocess.run(_command(found, built), capture_output=True, text=True)
        if run.returncode:
            raise WorldError(f"{found} could not build {SOURCE.name} for torch {torch.__version__}:\n{run.stderr}")
        built.chmod(0o700)
        built.replace(library)  # atomic, so that a concurrent build sees all or nothing
    return library


def _command(compiler: str, built: Path) -> list[str]:
    flags = [
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-shared",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]
    include = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    link = [f"-L{folder}" for folder in cpp_extension.library_paths()]
    return [compiler, *flags, *include, str(SOURCE), "-o", str(built), *link, "-lc10"]
