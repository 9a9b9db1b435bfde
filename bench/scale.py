"""scale: a batch of 15T tokens beside a batch of 10^9 tokens, in CPU time and in memory.

    python bench/scale.py [--quick] [--out FILE]

Both corpora have their true size: sparse files that read as zeros, with a hash for every page. Batches of 8 x 4096
tokens from the millionth on are read in turn from one and the other, each verified. Three figures are ratios of
medians, 15T over 10^9:

    first   read for the first time by a process that has been running: shards open, upper hashes known; as in a run
    fresh   read for the first time by a process that has just begun, which also opens a shard for nearly every window
    again   read again, the fastest of three: the loader's own work, with all of it in the page cache

Memory is what such a process takes beyond an empty corpus, the page cache it maps and page tables included.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from record import write_record
from xxhash import xxh3_64_intdigest

from surefoot.data.formats import open_corpus
from surefoot.data.hash_tree import PAGE, write_hashes
from surefoot.data.order import sample_ids
from surefoot.data.shards import write_manifest
from surefoot.data.windows import TokenWindows
from surefoot.records.manifest import Manifest, Shard

SIZES = {"small": [10**8 // PAGE * PAGE] * 10, "large": [10**10 // PAGE * PAGE] * 1501}
MILLIONTH, CONTEXT, SIZE = 10**6, 4096, 8


def sparse_corpus(folder: Path, sizes: list[int]) -> None:
    """Shards that read as zeros and take no disk; their page hashes are one file under many names."""
    folder.mkdir()
    digest = write_hashes(folder / "zeros", np.full(2 * sizes[0] // PAGE, xxh3_64_intdigest(bytes(PAGE)), np.uint64))
    for number, tokens in enumerate(sizes):
        path = folder / f"{number:05d}.ds"
        path.touch()
        os.truncate(path, 2 * tokens)
        os.link(folder / "zeros", f"{path}.pages")
    shards = tuple(Shard(f"{number:05d}.ds", tokens, digest=digest) for number, tokens in enumerate(sizes))
    write_manifest(folder, Manifest("uint16", 50_257, "none", -1, shards))


def settle(windows: TokenWindows) -> None:
    """Reads a token of every GiB: all shards are opened, and their upper hashes known, as in a run by its millionth."""
    for number, shard in enumerate(windows.corpus.manifest.shards):
        for first in range(0, shard.tokens, 2**29):
            windows.corpus.tokens(number, first, 1)


def seconds(windows: TokenWindows, step: int) -> float:
    """CPU time of one batch."""
    began = time.process_time()
    tokens, _ = windows.__getitems__(sample_ids(len(windows), 0, step * SIZE, SIZE))
    assert tokens.shape == (SIZE, CONTEXT)
    return time.process_time() - began


def medians(corpora: dict[str, TokenWindows], steps: range) -> dict[str, tuple[float, float]]:
    """Of each corpus, the time of a batch read for the first time, and of the fastest of three reads after it."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in corpora}
    for step in steps:
        for name, windows in corpora.items():
            first, *again = (seconds(windows, step) for _ in range(4))
            took[name].append((first, min(again)))
    return {name: tuple(np.median(rows, axis=0).tolist()) for name, rows in took.items()}


def memory_bytes() -> int:
    """Each physical page once, however often it is mapped; and page tables."""
    found = (("Pss", "smaps_rollup"), ("VmPTE", "status"))
    kibibytes = [re.search(rf"{name}:\s*(\d+)", Path(f"/proc/self/{file}").read_text()) for name, file in found]
    return 1024 * sum(int(each[1]) for each in kibibytes if each)


def memory_of(folder: Path, batches: int) -> int:
    """What a settled process takes after so many batches from the millionth on."""
    before = memory_bytes()
    windows = TokenWindows(open_corpus(folder), CONTEXT)
    settle(windows)
    for step in range(MILLIONTH, MILLIONTH + batches):
        seconds(windows, step)
    return memory_bytes() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer batches")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    batches = 150 if arguments.quick else 1000
    if arguments.memory_of:
        print(memory_of(arguments.memory_of, batches))
        return
    with tempfile.TemporaryDirectory() as made:
        folders = {name: Path(made, name) for name in SIZES}
        for name, sizes in SIZES.items():
            sparse_corpus(folders[name], sizes)
        opened = {}
        for name, folder in folders.items():
            began = time.process_time()
            opened[name] = TokenWindows(open_corpus(folder), CONTEXT)
            print(f"{name}: opened in {time.process_time() - began:.3f} s of CPU time", flush=True)
        fresh = medians(opened, range(MILLIONTH, MILLIONTH + 100))
        for windows in opened.values():
            settle(windows)
        settled = medians(opened, range(MILLIONTH + 100, MILLIONTH + 100 + batches))
        command = [sys.executable, __file__, *sys.argv[1:], "--memory-of"]
        memory = {name: int(subprocess.check_output([*command, folder])) for name, folder in folders.items()}
    for name in SIZES:
        first, again = settled[name]
        print(
            f"{name}: {1e6 * first:.0f} us for the first time ({1e6 * fresh[name][0]:.0f} in a process that has just "
            f"begun), {1e6 * again:.0f} us again, {memory[name] / 1e6:.0f} MB"
        )
    ratios = {
        "first": settled["large"][0] / settled["small"][0],
        "fresh": fresh["large"][0] / fresh["small"][0],
        "again": settled["large"][1] / settled["small"][1],
    }
    result = "RESULT " + " ".join(f"{name}={value:.2f}" for name, value in ratios.items())
    result += f" large_megabytes={memory['large'] / 1e6:.0f} small_megabytes={memory['small'] / 1e6:.0f}"
    if arguments.out:
        record = {"fresh_seconds": fresh, "settled_seconds": settled, "memory_bytes": memory, "result": result}
        write_record(arguments.out, record)
    print(result)


if __name__ == "__main__":
    main()
