"""Fixtures: speeds that nobody measured."""

import shutil

import pytest

from surefoot.hardware import Datasheet
from surefoot.hardware.here import keep_here
from surefoot.meters import allocator


@pytest.fixture(scope="module")
def measured_cpu(tmp_path_factory):
    """A cache with made-up speeds of this CPU, which nobody has to measure, and the built counter, if there is one."""
    library, cache = allocator._library(), tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        speeds = {"reached_flops": {"fp32": 1e11, "bf16": 5e10}, "memory_bandwidth": 1e10, "kernel_seconds": 5e-6}
        calls = {"forward": 2e-6, "backward": 1e-6, "update": 1e-6}
        keep_here(Datasheet("here", "x86_64", {}, 8 << 30, ("made up",), call_seconds=calls, **speeds))
        if library.exists():
            shutil.copy(library, cache / "surefoot" / library.name)
        yield
