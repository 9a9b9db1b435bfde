"""A second device for tests: host memory behind torch's interface for devices of others, PrivateUse1.

`torch.device("second")` computes what the CPU computes, to the bit. It counts every read for which the host would wait
on a GPU, and the bytes that are allocated; `limit` gives it less memory. `device.cpp` is compiled once for each version
of torch. A process in which it is registered has an accelerator for good, so tests that
need it run in processes of their own.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils import cpp_extension

from surefoot.meters.allocator import compiler

NAME = "second"
SOURCE = Path(__file__).with_name("device.cpp")
KINDS = ("copy", "scalar", "shape", "synchronize")
"""What the host waits for: a copy to it, one value, a size that values decide, all queued work."""
MISSING = "" if compiler() else "no C++ compiler: install g++ or set CXX"
"""Why there is no second device here. Empty if there is one."""
_Heard = ctypes.CFUNCTYPE(None, ctypes.c_int)


class Counts(NamedTuple):
    """What the device has counted so far."""

    copy: int
    scalar: int
    shape: int
    synchronize: int
    live_bytes: int
    peak_bytes: int

    @property
    def waits(self) -> int:
        """How often the host waited, for whatever."""
        return self.copy + self.scalar + self.shape + self.synchronize


@functools.cache
def register() -> None:
    """Makes `torch.device("second")` known in this process. Compiles it if nobody has."""
    from tests.second_device import module

    torch.utils.rename_privateuse1_backend(NAME)
    _library().second_register()
    torch._register_device_module(NAME, module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


def counts() -> Counts:
    """The counts so far. The peak is that since `reset_peak()`."""
    library = _library()
    waited = (library.second_waits(kind) for kind in range(len(KINDS)))
    return Counts(*waited, library.second_live_bytes(), library.second_peak_bytes())


def limit(limit_bytes: int) -> None:
    """From now on the device has this much memory: beyond it, `torch.OutOfMemoryError` is raised."""
    _library().second_limit(limit_bytes)


def memory() -> tuple[int, int]:
    """The free and all bytes of the device."""
    total = _library().second_limit_bytes()
    return total - counts().live_bytes, total


def reset_peak() -> None:
    """Resets the peak to the bytes that are live now."""
    _library().second_reset_peak()


@contextmanager
def heard(call: Callable[[str], None]) -> Iterator[None]:
    """Calls a function with the kind of each wait, in the thread that waits."""
    kept = _Heard(lambda kind: call(KINDS[kind]))
    _library().second_on_wait(kept)
    try:
        yield
    finally:
        _library().second_on_wait(_Heard())


@functools.cache
def _library() -> ctypes.CDLL:
    path = _built()
    torch.ops.load_library(path)
    library = ctypes.CDLL(str(path))
    for name in ("waits", "live_bytes", "peak_bytes", "limit_bytes"):
        getattr(library, f"second_{name}").restype = ctypes.c_int64
    library.second_on_wait.argtypes = [_Heard]
    library.second_limit.argtypes = [ctypes.c_int64]
    return library


def _built() -> Path:
    """The compiled device: one for each version of torch and of the source."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "surefoot-tests"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    source = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = cache / f"second-{torch.__version__}-{source}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            built = Path(folder) / library.name
            subprocess.run(_command(built), check=True)
            built.replace(library)  # atomic, so that a concurrent build sees all or nothing
    return library


def _command(built: Path) -> list[str]:
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    include = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    link = [f"-L{folder}" for folder in cpp_extension.library_paths()]
    made = [str(SOURCE), "-o", str(built), *link, "-lc10", "-ltorch_cpu"]
    return [compiler() or "c++", "-std=c++20", "-O0", "-fPIC", "-shared", abi, *include, *made]
