"""Plans of one of many ranks beside real ranks, and what a plan costs as ranks become many.

    python bench/ranks.py            the matrix, and the times
    python bench/ranks.py --quick    a sample of the matrix on 2 ranks, and the times with a small model

Memory: `recipes/llama` in a small size, on 2 and 4 ranks, FSDP2 and DDP, fp32 and bf16-mixed, AdamW by lists, fused and
plain. Each case is planned for one of so many CPUs, and run by as many gloo processes under the counting allocator
(`surefoot.meters.allocator`); rank 0 is compared, the first step and a steady one, byte by byte. A gloo thread lets go
of its buffers a moment after its collective is done, now and then too late for the next allocation; so the real steps
are taken several times over, and the least is the truth. Beside it torch's own `FSDPMemTracker`.

Time: seconds that the processor worked for whole commands, `surefoot plan llama size=405b ...` on 8, 1,024 and 16,384
ranks, interleaved. Prints one line `RESULT differing_bytes=N time_16384_over_8=R plan_405b_seconds=S`.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from record import write_record

import surefoot
from surefoot.data.batches import batches_of
from surefoot.meters import allocator
from surefoot.recipe.recipe import Recipe
from surefoot.recipes.llama import SHAPES, Llama, llama
from surefoot.step import Step
from surefoot.world.world import FakeWorld, RealWorld

SMALL = dataclasses.replace(SHAPES["tiny"], layers=3, width=128, hidden=352, context=64, heads=4, kv_heads=2)
ROUNDS, STEPS = 3, 4
ADAMW: dict[str, dict[str, bool]] = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "plain": {"foreach": False, "fused": False},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    ranks: int
    sharding: str
    precision: str
    adamw: str

    def __str__(self) -> str:
        return f"{self.ranks} {self.sharding} {self.precision} {self.adamw}"

    def recipe(self) -> Recipe:
        sizes = {
            "fsdp": {"dp_shard": self.ranks},
            "ddp": {"dp_replicate": self.ranks, "dp_shard": 1},
            "hsdp": {"dp_replicate": 2, "dp_shard": self.ranks // 2},
            "tp": {"dp_shard": self.ranks // 2, "tp": 2},
        }
        return dataclasses.replace(
            llama(context=SMALL.context),
            model=lambda: Llama(SMALL),
            optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, **ADAMW[self.adamw]),
            micro_batch_size=4,
            precision=self.precision,
            **sizes[self.sharding],
        )


MATRIX = [Case(*cell) for cell in itertools.product((2, 4), ("fsdp", "ddp"), ("32-true", "bf16-mixed"), ADAMW)]
BESIDES = [Case(4, sharding, "32-true", "foreach") for sharding in ("hsdp", "tp")]
SAMPLE = [Case(2, "fsdp", "bf16-mixed", "foreach"), Case(2, "ddp", "32-true", "fused")]


# ------------------------------------------------------------------------------------------- what is compared


def planned(case: Case) -> dict[str, int]:
    """The plan's peaks of the first and of a steady step."""
    plan = surefoot.plan(case.recipe(), on=f"{case.ranks}xcpu")
    return {"first": plan.first.peak.peak_bytes, "steady": plan.steady.peak.peak_bytes}


def real(case: Case) -> dict[str, int]:
    """The allocator's peaks on rank 0 of as many processes."""
    with tempfile.TemporaryDirectory() as folder:
        meeting, receivers = f"file://{folder}/meeting", []
        for rank in range(case.ranks):
            receiver, sender = PROCESSES.Pipe(duplex=False)
            child = PROCESSES.Process(target=rank_of, args=(sender, case, rank, meeting))
            child.start()
            receivers.append((receiver, child))
        found = [receiver.recv() for receiver, _ in receivers]
        for _, child in receivers:
            child.join()
    return found[0]


def rank_of(pipe: Any, case: Case, rank: int, meeting: str) -> None:
    """What one rank does."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(case.ranks)}
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=case.ranks)
    allocator.install()
    rounds = [peaks(case.recipe()) for _ in range(ROUNDS)]
    pipe.send({"first": min(each[0] for each in rounds), "steady": min(min(each[1:]) for each in rounds)})
    dist.destroy_process_group()


def peaks(recipe: Recipe) -> list[int]:
    """The peak of each step of a recipe that is built anew, above what was there before."""
    gc.collect()  # sharded modules refer to each other; what is freed meanwhile would be missing from the peak
    base, found = allocator.live_bytes(), []
    with RealWorld() as world:
        batches = batches_of(recipe, rank=world.rank // recipe.tp, ranks=world.ranks // recipe.tp)
        step = Step(recipe, world)
        for _ in range(STEPS):
            allocator.reset_peak()
            step(world.take(batches) for _ in range(step.micro_batches))
            found.append(allocator.peak_bytes() - base)
    return found


def tracked(case: Case) -> dict[str, int]:
    """The same peaks by torch's FSDPMemTracker, on fake ranks."""
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    recipe, found = case.recipe(), []
    with FakeWorld(ranks=case.ranks) as world:
        step = Step(recipe, world)
        batches = batches_of(recipe, ranks=case.ranks)
        tracker = FSDPMemTracker(step.model, step.optimizer)
        with tracker:
            for _ in range(2):
                tracker._peak_mem, tracker._peak_mem_snap = {}, {}
                taken = [world.take(batches) for _ in range(step.micro_batches)]
                tracker.track_external(*(each for batch in taken for each in batch))
                step(iter(taken))
                tracker.reset_mod_stats()
                found.append(next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"])
    return {"first": found[0], "steady": found[1]}


LOOKS = {"planned": planned, "tracked": tracked}


def look(name: str, case: Case) -> dict[str, Any]:
    """One look at a case in a process of its own."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=send_look, args=(sender, name, case))
    child.start()
    found: dict[str, Any] = receiver.recv()
    child.join()
    return found


def send_look(pipe: Any, name: str, case: Case) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        pipe.send(LOOKS[name](case))
    except Exception as error:
        pipe.send({"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"})


def processes() -> Any:
    """Children that are forked from a server which has loaded torch and has computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["surefoot.ways.plan", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"]
    )
    return context


PROCESSES = processes()


def compared(cases: list[Case]) -> Iterator[dict[str, Any]]:
    for case in cases:
        row = {"case": str(case), "real": real(case), "planned": look("planned", case)}
        row["tracked"] = look("tracked", case) if case.sharding == "fsdp" else {"error": "not FSDP"}
        yield row


def differing_bytes(row: dict[str, Any]) -> int:
    """How far the plan is off, first and steady step together; a plan that failed is off by all of it."""
    return sum(abs(row["real"][step] - row["planned"].get(step, 0)) for step in ("first", "steady"))


def line(row: dict[str, Any]) -> str:
    cells = [f"{row['case']:26}"]
    for step in ("first", "steady"):
        true = row["real"][step]
        cells.append(f"{step} {true:>12,}")
        for name in ("planned", "tracked"):
            found = row[name].get(step)
            cells.append(f"{name} {'-' if found is None else '=' if found == true else f'{found - true:+,}':>12}")
    return "  ".join(cells) + (f"  {row['planned']['error']}" if "error" in row["planned"] else "")


# ------------------------------------------------------------------------------------------- what a plan costs


def seconds(words: list[str], ranks: int) -> tuple[float, int, dict[str, Any]]:
    """Of one command: the seconds that the processor worked, the most bytes it held, and the plan."""
    command = [sys.executable, "-m", "surefoot", "plan", *words, "--on", f"{ranks}xh100-sxm", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        plan = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, json.loads(plan)


def times(words: list[str], counts: dict[int, list[str]], rounds: int) -> dict[str, Any]:
    """The least of a few interleaved runs on each number of ranks."""
    found: dict[int, list[tuple[float, int]]] = {ranks: [] for ranks in counts}
    for _ in range(rounds):
        for ranks, layout in counts.items():
            used, held, _ = seconds([*words, *layout], ranks)
            found[ranks].append((used, held))
            print(f"{ranks:>6} ranks {used:6.1f} s  {held / 2**30:.2f} GiB  {' '.join([*words, *layout])}", flush=True)
    return {
        str(ranks): {"seconds": min(s for s, _ in each), "bytes": max(b for _, b in each)}
        for ranks, each in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a sample of the matrix, and a small model's times")
    parser.add_argument("--only", help="only cases whose name has these words, and no times")
    parser.add_argument("--rounds", type=int, default=2, help="how often each plan is timed")
    parser.add_argument("--out", type=Path, default=Path("ranks.json"))
    options = parser.parse_args()
    if not allocator.available():
        raise SystemExit("the truth is counted by a C++ allocator; install g++ or set CXX")
    cases = SAMPLE if options.quick else [*MATRIX, *BESIDES]
    if options.only:
        cases = [case for case in cases if all(word in str(case).split() for word in options.only.split())]
    rows = []
    for row in compared(cases):
        rows.append(row)
        print(line(row), flush=True)
    differing = sum(map(differing_bytes, rows))
    if options.only:
        return
    size = ["llama", "size=8b", "layers=4"] if options.quick else ["llama", "size=405b"]
    layouts = {8: ["dp_shard=1", "tp=8"], 1024: ["dp_shard=128", "tp=8"], 16384: ["dp_shard=128", "tp=8"]}
    found = times(size, layouts, 1 if options.quick else options.rounds)
    write_record(options.out, {"rows": rows, "times": found})
    many, few = found["16384"]["seconds"], found["8"]["seconds"]
    seconds = "not-run" if options.quick else f"{many:.1f}"
    print(f"RESULT differing_bytes={differing} time_16384_over_8={many / few:.2f} plan_405b_seconds={seconds}")


if __name__ == "__main__":
    main()
