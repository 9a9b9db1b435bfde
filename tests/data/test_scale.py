"""Fifteen trillion tokens: a corpus of the true size costs what a small one costs, in memory and in time."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

from surefoot.data.formats import open_corpus
from surefoot.data.order import sample_ids
from surefoot.data.pages import PAGE, _write_hashes
from surefoot.data.shards import write_manifest
from surefoot.data.windows import TokenWindows
from surefoot.records.manifest import Manifest, Shard

SIZES = {"small": [10**8 // PAGE * PAGE] * 10, "large": [10**10 // PAGE * PAGE] * 1501}
MILLIONTH = 10**6

MEMORY = """
import sys
import torch
from surefoot.data.formats import open_corpus
from surefoot.data.order import sample_ids
from surefoot.data.windows import TokenWindows

def memory():  # each physical page once, however often it is mapped
    return next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:")) * 1024

before = memory()
windows = TokenWindows(open_corpus(sys.argv[1]), 4096)
for step in range(10**6, 10**6 + 64):
    windows.__getitems__(sample_ids(len(windows), 0, step * 8, 8))
print(memory() - before)
"""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale")
    for name, sizes in SIZES.items():
        sparse_corpus(folder / name, sizes)
    return folder


def sparse_corpus(folder: Path, sizes: list[int]) -> None:
    """Shards that read as zeros and take no disk; their page hashes are one file under many names."""
    folder.mkdir()
    digest = _write_hashes(folder / "zeros", np.full(2 * sizes[0] // PAGE, xxh3_64_intdigest(bytes(PAGE)), np.uint64))
    for number, tokens in enumerate(sizes):
        path = folder / f"{number:05d}.ds"
        path.touch()
        os.truncate(path, 2 * tokens)
        os.link(folder / "zeros", f"{path}.pages")
    shards = tuple(Shard(f"{number:05d}.ds", tokens, digest=digest) for number, tokens in enumerate(sizes))
    write_manifest(folder, Manifest("uint16", 50_257, "none", -1, shards))


def test_the_files_have_the_true_size(corpora):
    assert sum(path.stat().st_size for path in (corpora / "large").glob("*.ds")) >= 2 * 15 * 10**12
    assert len(TokenWindows(open_corpus(corpora / "large"), 4096)) == pytest.approx(15e12 / 4096, rel=1e-3)


def test_the_millionth_batch_of_fifteen_trillion_tokens_takes_little_memory(corpora):
    found = {}
    for name in SIZES:
        command = [sys.executable, "-c", MEMORY, str(corpora / name)]
        found[name] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"bytes: {found}")
    assert max(found.values()) < 200e6


def test_the_millionth_batch_of_fifteen_trillion_tokens_takes_no_longer(corpora):
    """The loader's own work: every batch is read four times, and its fastest counts.

    The first read also opens shards and has the kernel make pages and page tables; it is printed beside.
    """
    windows = {name: TokenWindows(open_corpus(corpora / name), 4096) for name in SIZES}
    took = {name: [] for name in SIZES}
    for step in range(MILLIONTH, MILLIONTH + 150):
        for name, each in windows.items():
            took[name].append([seconds(each, step) for _ in range(4)])
    reads = {name: np.array(rows) for name, rows in took.items()}
    first, second = (np.median(reads["large"][:, n]) / np.median(reads["small"][:, n]) for n in (0, 1))
    fastest = np.median(reads["large"].min(axis=1)) / np.median(reads["small"].min(axis=1))
    print(f"large over small: {fastest:.2f}; of the second read {second:.2f}; of the first {first:.2f}")
    assert fastest < 1.5


def seconds(windows: TokenWindows, step: int) -> float:
    began = time.process_time()
    tokens, _ = windows.__getitems__(sample_ids(len(windows), 0, step * 8, 8))
    assert tokens.shape == (8, 4096)
    return time.process_time() - began


def test_opening_fifteen_trillion_tokens_reads_the_manifest_alone(corpora):
    began = time.process_time()
    open_corpus(corpora / "large")
    assert time.process_time() - began < 1
