"""The loader's bench: its clock counts workers, its ratios are of one round, every loader gives true batches."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
with pytest.MonkeyPatch.context() as patched:
    patched.setenv("OMP_NUM_THREADS", "1")  # the bench sets it, for itself; it is taken back here
    import loader


def test_the_last_line_compares_with_each_peer_at_its_fastest():
    found = {
        "surefoot": [(4.0, 0), (40.0, 0)],
        "surefoot, verified": [(2.0, 0), (20.0, 0)],
        "memmap": [(2.0, 0), (20.0, 0)],
        "DataLoader": [(1.0, 0), (10.0, 0)],
        "DataLoader, 2 workers": [(0.1, 0), (1.0, 0)],
    }
    assert loader.ratios(found) == {"over_memmap": 2, "verified_over_memmap": 1, "torch_dataloader": 2}


def test_every_loader_gives_tokens_and_the_tokens_after_them(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "TOKENS", 1_000_000)
    monkeypatch.setattr(loader, "SECONDS", 0.01)
    monkeypatch.setattr(loader, "TORCH", {name: loader.TORCH[name] for name in ("memmap", "nanogpt")})
    loader.write_tokens(tmp_path)
    opened, failed = loader.opened(64, 4, tmp_path, quick=True)
    assert not failed
    found = loader.measure(opened, 2, 4 * 64)
    assert set(loader.ratios(found)) == {"over_memmap", "verified_over_memmap", "nanogpt"}
    assert "over memmap" in loader.table(found, {"none": "why"})


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_the_clock_counts_processes_below():
    before = loader.tree_seconds()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until(lambda: loader.tree_seconds() - before >= 0.2)
    finally:
        child.kill()
        child.wait()
