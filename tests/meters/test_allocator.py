"""The counting allocator: exact where the bytes are known by hand, and equal to torch's own profiler."""

import ctypes
import gc
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from surefoot.errors import WorldError
from surefoot.meters import allocator

needs_compiler = pytest.mark.skipif(not allocator.available(), reason="no C++ compiler")


def profiler_peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes live at once of those that `run` allocated, from the profiler's allocator events.

    What existed before the call is not counted, nor is its end: build the model inside `run` to have it in.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


@pytest.fixture
def counting() -> Iterator[int]:
    """Counts, and gives the bytes that were live when the test began; no old garbage is freed meanwhile."""
    gc.collect()
    gc.disable()
    allocator.install()
    allocator.reset_peak()
    yield allocator.live_bytes()
    allocator.uninstall()
    gc.enable()


@needs_compiler
def test_after_uninstalling_new_tensors_are_not_counted_and_counted_ones_are_still_booked_out(counting):
    held = torch.empty(100)
    allocator.uninstall()
    uncounted = torch.empty(1000)
    assert allocator.live_bytes() - counting == 400
    del held
    assert allocator.live_bytes() == counting
    allocator.install()
    del uncounted
    assert allocator.live_bytes() == counting


@needs_compiler
def test_a_tensor_adds_its_bytes_a_view_none_and_freeing_takes_them_away(counting):
    held = torch.empty(4, 8)
    assert allocator.live_bytes() - counting == 128
    view = held.view(32)[3:].t()
    assert allocator.live_bytes() - counting == 128
    del held
    assert allocator.live_bytes() - counting == 128
    del view
    assert allocator.live_bytes() == counting


@needs_compiler
def test_bytes_are_counted_as_requested_without_rounding(counting):
    held = torch.empty(3, dtype=torch.uint8)
    assert allocator.live_bytes() - counting == 3
    del held


@needs_compiler
def test_the_peak_sees_a_temporary_inside_an_expression(counting):
    x = torch.ones(1000)
    kept = (x + x) * x
    assert allocator.live_bytes() - counting == 8000
    assert allocator.peak_bytes() - counting == 12000
    allocator.reset_peak()
    assert allocator.peak_bytes() == allocator.live_bytes()
    del x, kept


@needs_compiler
def test_the_peak_sees_what_a_kernel_takes_and_gives_back(counting):
    x, weight = torch.randn(8, 16, 32, 32), torch.randn(16, 16, 3, 3)
    allocator.reset_peak()
    before = allocator.live_bytes()
    out = torch.nn.functional.conv2d(x, weight)
    assert allocator.live_bytes() - before == out.nbytes
    assert allocator.peak_bytes() - before > out.nbytes + x.nbytes  # oneDNN reorders its input
    del out


@needs_compiler
def test_threads_lose_no_byte(counting):
    one = torch.ones(256)

    def allocate() -> None:
        for _ in range(20):
            torch._foreach_neg([one] * 1000)  # a thousand tensors in one call that does not hold Python's lock

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allocator.live_bytes() - counting == one.nbytes
    assert 1_000 < (allocator.peak_bytes() - counting) / one.nbytes <= 4_001


@needs_compiler
def test_what_was_allocated_before_is_freed_and_does_not_go_below_zero():
    script = (
        "import torch; from surefoot.meters import allocator; old = torch.ones(1000); allocator.install();"
        "assert allocator.live_bytes() == 0; new = old.clone(); old.resize_(5000); assert old[999] == 1;"
        "assert allocator.live_bytes() == 4000; del old; assert allocator.live_bytes() == 4000;"
        "del new; assert allocator.live_bytes() == 0"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@needs_compiler
def test_equals_the_profiler_byte_for_byte_on_a_training_step(counting):
    def train() -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(800, 5)
        )
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(16, 3, 12, 12)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    train()  # what torch and oneDNN make once per process is made here
    allocator.reset_peak()
    before = allocator.live_bytes()
    train()
    counted = allocator.peak_bytes() - before
    assert counted > 16 * 3 * 12 * 12 * 4
    assert profiler_peak_bytes(train) == counted


def test_the_profiler_counts_without_a_compiler():
    assert profiler_peak_bytes(lambda: torch.ones(1000).exp()) == 8000


def test_without_a_compiler_the_error_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    allocator._counter.cache_clear()
    assert not allocator.available()
    with pytest.raises(WorldError, match="install g\\+\\+ or set CXX"):
        allocator.live_bytes()


@needs_compiler
def test_the_counter_is_built_once_and_loaded_from_then_on(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    allocator._build(allocator._library())
    assert ctypes.CDLL(str(allocator._library())).surefoot_install is not None
    monkeypatch.setenv("PATH", "")
    assert allocator.available()
    assert [file.name for file in (tmp_path / "surefoot").iterdir()] == [allocator._library().name]


EVIL = 'extern "C" __attribute__((constructor)) void run() { __builtin_trap(); }'


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the counter, a library that ends whoever loads it, and a compiler that only hands out the first."""
    folder = tmp_path_factory.mktemp("libraries")
    shutil.copyfile(allocator._counter()._name, folder / "good.so")
    (folder / "evil.cpp").write_text(EVIL)
    compiler = allocator.compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    subprocess.run([compiler, "-shared", "-fPIC", folder / "evil.cpp", "-o", folder / "evil.so"], check=True)
    (folder / "c++").write_text(
        f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {folder}/good.so "$2"\necho built >> {folder}/built\n'
    )
    (folder / "c++").chmod(0o755)
    return folder


def installed(cache: Path, libraries: Path) -> str:
    """What a new process says that counts with this cache folder: where its library lies."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "CXX": str(libraries / "c++")}
    program = "from surefoot.meters import allocator; allocator.install(); print(allocator._counter()._name)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"
    return done.stdout.strip()


@needs_compiler
@pytest.mark.parametrize("opened", ["file", "folder", "link", "above"])
def test_a_library_that_others_can_write_is_not_loaded(opened, libraries, tmp_path):
    cache = tmp_path / "cache"
    folder = cache / "surefoot"
    folder.mkdir(parents=True, mode=0o755)
    library = folder / allocator._library().name
    shutil.copyfile(libraries / "evil.so", library)
    library.chmod(0o755)
    if opened == "link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        {"file": library, "folder": folder, "above": cache}[opened].chmod(0o777)
    loaded = Path(installed(cache, libraries))
    assert loaded.is_relative_to(cache) == (opened in ("file", "folder"))


@needs_compiler
def test_what_is_built_is_closed_to_others_and_used_again(libraries, tmp_path):
    first = installed(tmp_path / "cache", libraries)
    built = (libraries / "built").read_text()
    assert installed(tmp_path / "cache", libraries) == first
    assert (libraries / "built").read_text() == built
    for path in (Path(first), Path(first).parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@needs_compiler
def test_a_library_of_another_user_is_not_loaded(libraries, tmp_path):
    if os.geteuid():
        pytest.skip("only root can give files away")
    library = tmp_path / "surefoot" / allocator._library().name
    library.parent.mkdir(mode=0o755)
    shutil.copyfile(libraries / "evil.so", library)
    library.chmod(0o755)
    os.chown(library, 65534, 65534)
    installed(tmp_path, libraries)
