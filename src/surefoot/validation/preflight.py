"""Preflight: the parts that everything else needs, each tried once on this device before the recipes run.

A part that fails is named with its reason. A part that cannot run on this device says so.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
import torch.distributed as dist

from surefoot.data.batches import batches_of
from surefoot.errors import MissingPackage, WorldError
from surefoot.meters.kineto import read_trace, traced
from surefoot.randomness import kept
from surefoot.recipe.load import load_recipe
from surefoot.recipe.recipe import Precision, Recipe
from surefoot.records.validation import Part
from surefoot.step import Step
from surefoot.units import bytes_text, seconds_text
from surefoot.validation.cases import ALL_REDUCE
from surefoot.validation.reasons import reason_of, without_places
from surefoot.watch import watch_call
from surefoot.ways.train import train
from surefoot.world import cuda
from surefoot.world.device import accelerator
from surefoot.world.world import RealWorld, agent_store

ALLOCATED_BYTES = 64 << 20
ALL_REDUCE_SECONDS = 60
WATCHED_STEPS = 20
STEPS, KILLED_AFTER, SAVE_SECONDS = 5, 3, 60.0
SMALL = "layers=2 width=64 heads=2 context=32 micro_batch_size=4 global_batch_tokens=128"
SCRIPT = f"""\
import time
import torch
from torch import nn

torch.manual_seed(0)
device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
truth = torch.randn(64, 8)
began = time.perf_counter()
for _ in range({WATCHED_STEPS}):
    batch = torch.randn(128, 64)
    labels = (batch @ truth).argmax(1).to(device)
    loss = nn.functional.cross_entropy(model(batch.to(device)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
last = loss.item()
seconds = time.perf_counter() - began
"""
"""A training without a bug, for the part `watch`."""


class Wrong(Exception):
    """A part gave a wrong result."""


class NotRun(Exception):
    """A part cannot run on this device."""


def tried(name: str) -> Part:
    """Runs a part. Whatever goes wrong is its result."""
    began = time.perf_counter()
    try:
        said = PARTS[name]()
        return Part(name, "ok", said, time.perf_counter() - began)
    except NotRun as reason:
        return Part(name, "not run", str(reason), time.perf_counter() - began)
    except Exception as error:
        said = without_places(str(error)) if isinstance(error, Wrong) else reason_of(error)
        return Part(name, "failed", said, time.perf_counter() - began)


def _device() -> torch.device:
    return accelerator() or torch.device("cpu")


def _allocate() -> str:
    numbers = torch.full((ALLOCATED_BYTES // 4,), 1.5, device=_device())
    numbers += 1
    if not bool((numbers.cpu() == 2.5).all()):
        raise Wrong("a tensor does not hold what was written into it")
    return f"{bytes_text(ALLOCATED_BYTES)} on {_device().type}, written and read back"


def _step(precision: Precision) -> str:
    recipe, world = load_recipe("gpt", [*SMALL.split(), f"precision={precision}"]), RealWorld()
    batches = batches_of(recipe)
    with kept(), world:
        outcome = _built(recipe, world)(world.take(batches) for _ in range(recipe.micro_batches()))
        loss = outcome.loss.item()
    return f"loss {loss:.3f}" if outcome.updated else f"loss {loss:.3f}; the scaler skipped the update"


def _built(recipe: Recipe, world: RealWorld) -> Step:
    """The step of a recipe. FP8 needs units of the device, and a package."""
    try:
        return Step(recipe, world)
    except (MissingPackage, WorldError) as reason:
        raise NotRun(str(reason)) from reason


def _all_reduce() -> str:
    """Adds up a number over all ranks. A rank that waits longer than the timeout fails."""
    world = RealWorld()
    store, backend = agent_store("ranks") or dist.HashStore(), dist.get_default_backend_for_device(world.device)
    most = timedelta(seconds=ALL_REDUCE_SECONDS)
    dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.ranks, timeout=most)
    try:
        numbers = torch.full((1024,), world.rank + 1.0, device=world.device)
        dist.all_reduce(numbers)
        total = world.ranks * (world.ranks + 1) / 2
        if not bool((numbers.cpu() == total).all()):
            raise Wrong(f"the sum over {world.ranks} ranks is {numbers[0].item():g}, not {total:g}")
    finally:
        dist.destroy_process_group()
    return f"{backend}, {world.ranks} rank{'s' if world.ranks > 1 else ''}"


def short_run() -> Recipe:
    """Batch norm and dropout: a resume that forgets a buffer or a random number shows in the weights."""
    words = ["samples=256", f"max_steps={STEPS}", "save_every=2", "deterministic=true"]
    return load_recipe("sentiment", words)


def die_while_training(path: str) -> None:
    """Trains in a run directory, and kills this process after a step, once a checkpoint is on the disk."""

    def kill(_: Any, row: Any) -> None:
        if row.step == KILLED_AFTER:
            end = time.monotonic() + SAVE_SECONDS
            while not any(Path(path, "checkpoints").glob("step-*")) and time.monotonic() < end:
                time.sleep(0.02)  # checkpoints are written in the background
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends a process at once by either

    train(short_run(), path=path, tell=kill)


def _resume() -> str:
    """Saves, is killed and resumes. The weights must be those of a run that was left alone."""
    with tempfile.TemporaryDirectory() as folder:
        whole = train(short_run(), path=f"{folder}/whole")
        code = f"from surefoot.validation.preflight import die_while_training as die; die({f'{folder}/killed'!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, errors="replace")
        if done.returncode == 0 or not Path(folder, "killed", "checkpoints").exists():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise Wrong(f"the run that was to be killed did not get to step {KILLED_AFTER}: {last}")
        taken: list[int] = []
        resumed = train(short_run(), path=f"{folder}/killed", tell=lambda _, row: taken.append(row.step))
        if not taken or taken[0] == 1:
            raise Wrong("the killed run started again from the first step")
        if whole.weights.read_bytes() != resumed.weights.read_bytes() or whole.last_loss != resumed.last_loss:
            raise Wrong(
                f"killed after step {KILLED_AFTER} and resumed, a run ended with other bits, despite deterministic=true"
            )
    return f"killed after step {KILLED_AFTER} of {STEPS}, resumed from a checkpoint, the same bits"


def _watch() -> str:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT, encoding="utf-8")
        for _ in range(2):  # the first one loads kernels
            bare = runpy.run_path(str(script))["seconds"]
        found: dict[str, Any] = {}
        watched = watch_call(lambda: found.update(runpy.run_path(str(script))), name=str(script))
        if watched.failure:
            raise Wrong(f"watching failed: {watched.failure}")
        if watched.findings.findings:
            raise Wrong(f"found {watched.findings.findings[0].check} in a script without a bug")
        if watched.steps != WATCHED_STEPS:
            raise Wrong(f"{watched.steps} of {WATCHED_STEPS} steps were seen")
        counted = _waits(script)
    spent = f"{WATCHED_STEPS} watched steps took {seconds_text(found['seconds'])}, {seconds_text(bare)} unwatched"
    return f"{spent}; {counted}"


def _waits(script: Path) -> str:
    """How often the host waits in a step, if the device counts it."""
    if not cuda.is_there():
        return "waits not counted: no GPU"
    with cuda.counting_waits() as bare:
        runpy.run_path(str(script))
    with cuda.counting_waits() as watched:
        watch_call(lambda: runpy.run_path(str(script)), name=str(script))
    return f"{len(watched) / WATCHED_STEPS:.1f} waits a step, {len(bare) / WATCHED_STEPS:.1f} unwatched"


def _profiler() -> str:
    """A trace must show a kernel of the GPU; on a CPU, an operator."""
    device = _device()
    if device.type not in ("cpu", "cuda"):
        raise NotRun(f"surefoot reads no kernels of {device.type} from a trace")
    model = torch.nn.Linear(256, 256, device=device)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        traced(lambda: model(torch.ones(256, 256, device=device)).sum().item(), model, file, times=1, inside={})
        events = read_trace(file)["traceEvents"]
    kind = "kernel" if device.type == "cuda" else "cpu_op"
    seen = [event["name"] for event in events if event.get("cat") == kind]
    if not seen:
        raise Wrong(f"the trace of a product on {device.type} has no event of the kind {kind}")
    return f"{len(seen)} {'kernels' if kind == 'kernel' else 'operators of the CPU'} in a trace"


def _cuda_calls() -> str:
    """Calls every function of `world/cuda.py` once."""
    if not cuda.is_there():
        raise NotRun("no GPU")
    with tempfile.TemporaryDirectory() as folder:
        calls = calls_of_cuda(_device(), str(Path(folder) / "snapshot.pickle"))
        wrong = [f"{name}: {reason}" for name, call in calls.items() if (reason := _error_of(call))]
    if wrong:
        raise Wrong(f"{len(wrong)} of {len(calls)} calls failed: {'; '.join(wrong)}")
    return f"{len(calls)} calls"


def calls_of_cuda(device: torch.device, file: str) -> dict[str, Callable[[], object]]:
    """A call of each function of `world/cuda.py`, by name. `file` is for a snapshot of the memory."""

    def limited() -> None:
        with cuda.memory_limit(cuda.used_and_total_bytes()[1], device):
            torch.ones(8, device=device)

    def waited() -> None:
        with cuda.counting_waits() as waits:
            torch.ones(8, device=device).sum().item()
        if not waits:
            raise Wrong("a read of a value was not counted as a wait")

    def timed() -> None:
        first = cuda.mark()
        torch.ones(8, device=device).sum()
        if cuda.seconds_between(first, cuda.mark()) < 0:
            raise Wrong("negative seconds between two marks")

    return {
        "is_there": cuda.is_there,
        "has_started": cuda.has_started,
        "device_name": lambda: cuda.device_name(device),
        "properties": cuda.properties,
        "synchronize": cuda.synchronize,
        "reset_peaks": cuda.reset_peaks,
        "peaks": cuda.peaks,
        "peaks_of": lambda: cuda.peaks_of({}),
        "held_bytes": lambda: cuda.held_bytes(device),
        "used_and_total_bytes": cuda.used_and_total_bytes,
        "has_expandable_segments": cuda.has_expandable_segments,
        "memory_limit": limited,
        "dump_snapshot": lambda: cuda.dump_snapshot(file),
        "counting_waits": waited,
        "mark": cuda.mark,
        "seconds_between": timed,
    }


def _error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return reason_of(error)
    return ""


PARTS: dict[str, Callable[[], str]] = {
    "allocate": _allocate,
    **{f"step-{precision}": partial(_step, precision) for precision in get_args(Precision)},
    ALL_REDUCE: _all_reduce,
    "resume": _resume,
    "watch": _watch,
    "profiler": _profiler,
    "cuda-calls": _cuda_calls,
}
