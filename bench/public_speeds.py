"""Speeds: tokens per second that a plan predicts, beside what published runs reached on NVIDIA GPUs.

Every published row with a speed is in `public_speeds.jsonl`. A row that cannot be rebuilt is counted with the reason.
Rows that differ only in GPU, number of GPUs and accumulation share one plan, made for the fewest GPUs among them; its
step is timed anew on each row's cluster. Of llm-foundry's plans every `EVERY`th is made, in the order of a hash of what
their rows share. A step of n micro-batches takes n times what one micro-batch takes, and one update.

Rows are held out by source: the constants that predict a source are fitted to all other sources (`public_fit.py`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from public_recipes import CannotRebuild, Row, device_of, recipe_of

import surefoot
from surefoot.costs.time_constants import Constants
from surefoot.costs.time_on_cluster import time_on
from surefoot.hardware import Cluster, cluster
from surefoot.records.codec import from_json, to_json
from surefoot.records.plan import Fit, Plan
from surefoot.records.step_time import StepTime
from surefoot.records.tally import Tally
from surefoot.records.usage import Usage
from surefoot.world.gpu.target import CONTEXT_BYTES, targets

ROWS = Path(__file__).with_name("public_speeds.jsonl")
EVERY = 4
QUICK = ("mpt-215-125m-s1024-8xa100_40gb", "litgpt-thunder-5")
SHARED = ("model", "seq_len", "micro_batch", "activation_checkpointing", "zero_stage")


@dataclass(frozen=True)
class Software:
    """What a source's rows ran with, where it decides how long a step takes."""

    attention: dict[str, str]
    """The kernel, by GPU; where it is not named, torch's own choice."""
    prefetches: bool = True
    """Whether backward gathers the next block while it computes this one."""
    networks: dict[str, str] | None = None
    """What a node sends in bytes per second, by GPU; where it is not stated, what is assumed for the device."""
    old: bool = False
    """Whether it ran on torch 2.0 or before, with the matrix products of CUDA 11."""
    reduces_once: bool = False
    """Whether ranks communicate once a step, not once a micro-batch: ZeRO 1."""


SOFTWARE = {
    "llm-foundry": Software(
        {"A100": "flash-1", "H100": "flash-1"}, prefetches=False, networks={"A100": "200e9"}, old=True
    ),
    "fms-fsdp": Software({"A100": "flash-2", "H100": "flash-2"}, networks={"A100": "50e9", "H100": "100e9"}),
    "torchtitan": Software({"A100": "flash-2", "H100": "flash-2"}, networks={"H100": "400e9"}),
    "internevo": Software({"A100": "flash-2"}, networks={"A100": "50e9"}, reduces_once=True, old=True),
    "hf-transformers": Software({}, old=True),
    "modded-nanogpt": Software({"NVIDIA": "flash-2"}),
}
"""llm-foundry required flash-attn 1.0.3 (setup.py, May 2023), and 1.0.6 for products in float8 on the H100. Composer's
FSDP gathers a block in backward after the one before it is done (`backward_prefetch="BACKWARD_POST"`). torchtitan asks
for flash attention on the H100 and for cuDNN's only on the B200. InternEvo states 4 x 100 Gb/s. The scripts of
modded-nanogpt that are rebuilt ran on torch 2.4 and 2.5.1, where cuDNN's attention is not the default; one ran on
2.5.0, where it is."""
CUDNN = ("modded-1-2024-10-18_PyTorch25",)


def read() -> list[Row]:
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def lab_of(row: Row) -> str:
    """The framework and lab that a row is held out with."""
    return "torchtitan" if row.get("framework", "").startswith("torchtitan") else row["source"]


def software_of(row: Row) -> Software:
    return SOFTWARE.get(lab_of(row), Software({}))


# ------------------------------------------------------------------------------------------- plans


def sampled(rows: list[Row], every: int = EVERY) -> tuple[list[list[Row]], list[Row]]:
    """Rows by the plan that they share; and those that cannot be rebuilt, with the reason."""
    rebuilt, refused = [], []
    for row in rows:
        try:
            recipe_of(row, timed=True)
            device_of(row)
            rebuilt.append(row)
        except CannotRebuild as reason:
            refused.append(row | {"refused": str(reason)})
    foundry, others = (
        _shared(row for row in rebuilt if (row["source"] == "llm-foundry") is of) for of in (True, False)
    )
    return foundry[::every] + others, refused


def _shared(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows by what they share, in the order of its hash."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key_of(row), []).append(row)
    return [found[key] for key in sorted(found)]


def key_of(row: Row) -> str:
    """Names the plan that a row shares with others."""
    shared: tuple[Any, ...] = tuple(row.get(key) for key in SHARED)
    if row["source"] != "llm-foundry":
        sizes, extra = sizes_of(row), row.get("extra", "")
        how = [word for word in ("=never", "=always", "chunked") if word in extra]
        muon = lab_of(row) == "modded-nanogpt" and row["id"].partition("_")[2]
        written = (row["source"], muon, row.get("optimizer"), row.get("precision", "")[:4] == "fp32", *how)
        shared += (*written, sizes["dp_replicate"] > 1, sizes["dp_shard"] > 1)
    return hashlib.sha256(repr((*shared, *(("compiled",) if row.get("compile") else ()))).encode()).hexdigest()


def found(rows: list[Row]) -> list[Row]:
    """Rows that share a plan, each with its step."""
    began = time.process_time()
    fewest = min(rows, key=lambda row: (row["n_gpus"], row["id"]))
    recipe = replace(recipe_of(fewest, timed=True), global_batch_tokens=None)
    plan = surefoot.plan(recipe, on=device_of(fewest))
    step = replace(plan.steady, timeline=type(plan.steady.timeline)(), largest=(), phase_peaks={})
    memory = {"reserved_bytes": plan.reserved_bytes, "allocated_bytes": plan.allocated_bytes}
    made = {"step": to_json(step, indent=None), "compiled": recipe.compile != "off", **memory}
    seconds = time.process_time() - began
    return [told(row) | made | {"seconds": seconds, "fits": fits(row, plan)} for row in rows]


def told(row: Row) -> Row:
    """What identifies a row, and what it states."""
    keys = ("id", "source", "model", "gpu", "n_gpus", "outcome")
    return {**{key: row.get(key) for key in keys}, "lab": lab_of(row), "published": published(row)}


def published(row: Row) -> float:
    """Tokens per second and GPU. litgpt states the seconds of one micro-batch."""
    if "tokens_per_s_per_gpu" in row:
        return row["tokens_per_s_per_gpu"]
    if row["source"] == "litgpt":
        return row["micro_batch"] * row["seq_len"] / row["step_time_s"]
    return 0.0


# ------------------------------------------------------------------------------------------- the time of a row


def step_of(row: Row, made: Row) -> Usage:
    """The step of a row's plan, as its software runs it."""
    step = from_json(Usage, made["step"])
    return step if software_of(row).prefetches else without_prefetch(step)


def machines_of(row: Row) -> Cluster:
    return cluster(device_of(row), between_nodes=(software_of(row).networks or {}).get(gpu_of(row)))


def attention_of(row: Row) -> str:
    return "cudnn" if row["id"] in CUDNN else software_of(row).attention.get(gpu_of(row), "")


def taken_by(row: Row, step: Usage, fitted: Constants | None = None) -> StepTime:
    return time_on(machines_of(row), step, sizes_of(row), attention=attention_of(row), fitted=fitted)


def seconds_of(row: Row, taken: StepTime) -> float:
    """The seconds of all micro-batches and the update."""
    once = taken.phases.get("update", 0.0)
    once += taken.bounds.get("communication", 0.0) if software_of(row).reduces_once else 0.0
    return row.get("grad_accum", 1) * (taken.seconds - once) + once


def tokens_of(row: Row) -> int:
    """The tokens of a step on one GPU. TinyLlama states 16k."""
    return row.get("grad_accum", 1) * row.get("micro_batch", 8) * row["seq_len"]


def gpu_of(row: Row) -> str:
    """`A100` of `A100 80GB`."""
    return row["gpu"].partition(" ")[0]


def sizes_of(row: Row) -> dict[str, int]:
    how, ranks = row.get("parallelism", ""), row["n_gpus"]
    shards = 1 if how.startswith(("DDP", "data parallel")) else ranks
    if how.startswith("HSDP") or "8 GPUs" in how:
        shards = 8
    return {"tp": 1, "dp_shard": shards, "dp_replicate": ranks // shards}


def without_prefetch(step: Usage) -> Usage:
    """The same step, with nothing computed while backward gathers."""
    hidden = [each for each in step.tally.accounts if not _gathers_in_backward(each.name)]
    return replace(step, tally=Tally.of(hidden))


def _gathers_in_backward(account: str) -> bool:
    return account.startswith("overlap/all-gather/") and account.endswith("/backward")


def fits(row: Row, plan: Plan) -> bool:
    """Whether the plan's memory fits these devices: no less than more of them."""
    _, target = targets(device_of(row))
    memory: dict[str, Any] = {"memory_bytes": target.memory_bytes, "context_bytes": CONTEXT_BYTES}
    return Fit.of(target.name, **memory, reserved_bytes=plan.reserved_bytes).fits


# ------------------------------------------------------------------------------------------- what is printed

COLUMNS = f"{'row':48} {'published':>10} {'predicted':>10} {'error %':>8} inside, and what bounds the step"


def line(row: Row) -> str:
    """A row of the table, in tokens per second and GPU, predicted by constants that its source did not see."""
    name = f"{row['id']:48} {row['published']:10.0f}"
    if "crashed" in row:
        return f"{name} crashed: {row['crashed']}"
    bounds = ", ".join(f"{share:.0%} {bound}" for bound, share in row["bounds"].items() if share >= 0.01)
    return f"{name} {row['predicted']:10.0f} {row['error_pct']:+8.1f} {'yes' if row['inside'] else 'no':>6}  {bounds}"


def reasons(refused: list[Row]) -> list[str]:
    """How many rows of each source were not rebuilt, and why."""
    counts = Counter((row["source"], row["refused"]) for row in refused)
    return [f"not rebuilt: {count:4} of {source}: {reason}" for (source, reason), count in sorted(counts.items())]


def markdown(rows: list[Row]) -> str:
    lines = ["| run | GPU | published | predicted | error % | inside |", "|---|---|---:|---:|---:|---|"]
    for row in rows:
        if "predicted" in row:
            cells = f"{row['id']} | {row['n_gpus']} x {row['gpu']} | {row['published']:.0f} | {row['predicted']:.0f}"
            lines.append(f"| {cells} | {row['error_pct']:+.1f} | {'yes' if row['inside'] else 'no'} |")
    return "\n".join(lines)
