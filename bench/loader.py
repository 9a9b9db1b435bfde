"""loader: batches of tokens per CPU-second, from surefoot and from others, off the same tokens.

    python bench/loader.py [--quick] [--context 1024] [--size 8] [--rounds 7] [--out FILE]

All take turns: in every round each loader gives batches for a while, and the CPU time of the whole process tree
is taken, workers included, so that a busy machine slows all alike. Every figure is the median over the rounds,
every ratio the median of the ratios within a round. The tokens lie in the page cache.

A peer is held at its fastest setting. The last line divides surefoot's throughput, as it is and with every page
verified, by that of a bare memmap; and surefoot's verified throughput by each peer's.

`--quick` leaves out what must be installed. Otherwise peers come into an environment of their own, which sees
this one's torch and installs no other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from loader_peers import OTHERS, PACKAGES, TORCH, Batch
from record import write_record

from surefoot.data.formats import open_corpus
from surefoot.data.order import sample_ids
from surefoot.data.shards import ShardWriter, write_manifest
from surefoot.data.windows import TokenWindows
from surefoot.records.manifest import Manifest

TOKENS = 90_000_000
SECONDS = 0.5
PEERS_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "surefoot" / "loader-peers"


def surefoot(folder: Path, context: int, size: int, *, verify: bool) -> Iterator[Batch]:
    """What training reads: the order of samples, and one verified copy."""
    windows = TokenWindows(open_corpus(folder, verify=verify), context)
    position = 0
    while True:
        yield windows.__getitems__(sample_ids(len(windows), 0, position, size))
        position += size


# ------------------------------------------------------------------------------------------- the tokens


def write_tokens(folder: Path) -> Path:
    """A corpus of one shard, whose tokens others read as a flat file."""
    random = np.random.default_rng(0)
    writer = ShardWriter(folder, "tokens", "uint16")
    for _ in range(TOKENS // 1_000_000):
        writer.add(random.integers(0, 50_257, 1_000_000, dtype=np.uint16))
    shard = writer.close()
    write_manifest(folder, Manifest("uint16", 50_257, "random", -1, (shard,)))
    return folder / "tokens.ds"


# ------------------------------------------------------------------------------------------- the clock


def tree_seconds() -> float:
    """CPU time of this process and of all below it."""
    ticks = os.sysconf("SC_CLK_TCK")
    alive = sum(_ticks(pid) for pid in _below(os.getpid())) / ticks
    return time.process_time() + alive


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from _below(child)


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def throughput(batches: Iterator[Batch], tokens: int) -> tuple[float, float]:
    """Tokens per CPU-second, and per second."""
    for _ in range(20):
        next(batches)
    given, cpu, clock = 0, tree_seconds(), time.perf_counter()
    while time.perf_counter() - clock < SECONDS:
        for _ in range(20):
            next(batches)
        given += 20
    return given * tokens / (tree_seconds() - cpu), given * tokens / (time.perf_counter() - clock)


# ------------------------------------------------------------------------------------------- measuring


def opened(context: int, size: int, folder: Path, *, quick: bool) -> tuple[dict[str, Iterator[Batch]], dict[str, str]]:
    """Every loader that runs here, and why the others do not."""
    path = folder / "tokens.ds"
    loaders: dict[str, Iterator[Batch]] = {
        "surefoot": surefoot(folder, context, size, verify=False),
        "surefoot, verified": surefoot(folder, context, size, verify=True),
    }
    failed = {}
    for variants in (TORCH if quick else TORCH | OTHERS).values():
        for name, make in variants.items():
            try:
                loaders[name] = iter(make(path, context, size))
                tokens, targets = next(loaders[name])
                assert tokens.shape == targets.shape == (size, context), tokens.shape
                assert tokens.dtype == targets.dtype == torch.int64
                assert torch.equal(tokens[:, 1:], targets[:, :-1])
            except Exception as error:
                loaders.pop(name, None)
                failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return loaders, failed


def measure(loaders: dict[str, Iterator[Batch]], rounds: int, tokens: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, batches in loaders.items():
            found[name].append(throughput(batches, tokens))
    return found


def ratio(found: dict[str, list[tuple[float, float]]], name: str, other: str) -> float:
    return statistics.median(mine[0] / theirs[0] for mine, theirs in zip(found[name], found[other], strict=True))


def ratios(found: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """The last line's figures."""
    made = {
        "over_memmap": ratio(found, "surefoot", "memmap"),
        "verified_over_memmap": ratio(found, "surefoot, verified", "memmap"),
    }
    for peer, variants in (TORCH | OTHERS).items():
        here = [ratio(found, "surefoot, verified", name) for name in variants if name in found]
        if here and peer != "memmap":
            made[peer] = min(here)
    return made


# ------------------------------------------------------------------------------------------- what is printed


def table(found: dict[str, list[tuple[float, float]]], failed: dict[str, str]) -> str:
    lines = [f"{'loader':34} {'Mtok/CPU-s':>11} {'over memmap':>12} {'Mtok/s':>9}"]
    for name, rows in sorted(found.items(), key=lambda item: -statistics.median(cpu for cpu, _ in item[1])):
        cpu, wall = (statistics.median(each) / 1e6 for each in zip(*rows, strict=True))
        lines.append(f"{name:34} {cpu:11.1f} {ratio(found, name, 'memmap'):12.3f} {wall:9.1f}")
    lines += [f"{name:34} did not run: {why}" for name, why in failed.items()]
    return "\n".join(lines)


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES[:5]:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


# ------------------------------------------------------------------------------------------- the command


def run_among_peers(arguments: list[str]) -> int:
    """The same command in an environment that has the peers, and this one's packages."""
    python = PEERS_HOME / "bin" / "python"
    done = PEERS_HOME / "installed"
    if not done.exists():
        print(f"installing {', '.join(PACKAGES[:5])} into {PEERS_HOME}", flush=True)
        venv.create(PEERS_HOME, with_pip=True, clear=True)
        site = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        Path(site.strip(), "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
        for package in PACKAGES:
            command = [python, "-m", "pip", "install", "--quiet", "--no-deps", package]
            if subprocess.run(command, check=False).returncode:
                print(f"{package} cannot be installed here", flush=True)
        done.touch()
    return subprocess.run([python, __file__, *arguments, "--here"], check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only what needs nothing but torch")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--size", type=int, default=8, help="samples in a batch")
    parser.add_argument("--rounds", type=int, help="how often all take turns")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not (arguments.quick or arguments.here):
        raise SystemExit(run_among_peers(sys.argv[1:]))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_tokens(Path(folder))
        loaders, failed = opened(arguments.context, arguments.size, Path(folder), quick=arguments.quick)
        rounds = arguments.rounds or (5 if arguments.quick else 7)
        found = measure(loaders, rounds, arguments.size * arguments.context)
    print(table(found, failed))
    made = ratios(found)
    result = "RESULT " + " ".join(f"{name}={value:.3f}" for name, value in made.items())
    if arguments.out:
        record = {
            "numpy": np.__version__,
            "peers": versions(),
            "context": arguments.context,
            "size": arguments.size,
            "tokens": TOKENS,
        }
        record |= {"tokens_per_cpu_second": found, "did_not_run": failed, "ratios": made, "result": result}
        write_record(arguments.out, record)
    print(result, flush=True)
    os._exit(0)  # some peers leave workers and threads that never end


if __name__ == "__main__":
    main()
