"""Fifteen trillion tokens: a corpus of the true size costs what a small one costs, in memory and in time."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from surefoot.data.formats import open_corpus
from surefoot.data.windows import TokenWindows

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench"))
with pytest.MonkeyPatch.context() as patched:
    patched.setenv("OMP_NUM_THREADS", "1")  # the bench sets it, for itself; it is taken back here
    import scale


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale")
    for name, sizes in scale.SIZES.items():
        scale.sparse_corpus(folder / name, sizes)
    return folder


def test_the_files_have_the_true_size(corpora):
    assert sum(path.stat().st_size for path in (corpora / "large").glob("*.ds")) >= 2 * 15 * 10**12
    assert len(TokenWindows(open_corpus(corpora / "large"), 4096)) == pytest.approx(15e12 / 4096, rel=1e-3)


def test_the_millionth_batch_of_fifteen_trillion_tokens_takes_little_memory(corpora):
    found = {}
    for name in scale.SIZES:
        command = [sys.executable, scale.__file__, "--memory-of", str(corpora / name)]
        found[name] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"bytes: {found}")
    assert max(found.values()) < 200e6


def test_the_memory_of_a_large_corpus_does_not_grow_with_what_was_read(corpora):
    """A map would keep a page of page tables for every window."""
    windows = TokenWindows(open_corpus(corpora / "large"), 4096)
    assert not windows.corpus.mapped
    scale.settle(windows)
    before = scale.memory_bytes()
    for step in range(500):
        scale.seconds(windows, step)
    assert scale.memory_bytes() - before < 500 * scale.SIZE * 1024


def test_the_millionth_batch_of_fifteen_trillion_tokens_takes_no_longer(corpora):
    """Batches that were never read before, in a process that has been running: its shards are open.

    The assertion leaves room for a busy machine; `bench/scale.py` measures the ratio itself.
    """
    windows = {name: TokenWindows(open_corpus(corpora / name), 4096) for name in scale.SIZES}
    for each in windows.values():
        scale.settle(each)
    took = {name: [] for name in windows}
    for step in range(scale.MILLIONTH, scale.MILLIONTH + 150):
        for name, each in windows.items():
            took[name].append(scale.seconds(each, step))
    ratio = np.quantile(took["large"], 0.25) / np.quantile(took["small"], 0.25)
    print(f"large over small: {ratio:.2f}")
    assert ratio < 2.5


def test_opening_fifteen_trillion_tokens_reads_the_manifest_alone(corpora):
    began = time.process_time()
    open_corpus(corpora / "large")
    assert time.process_time() - began < 1
