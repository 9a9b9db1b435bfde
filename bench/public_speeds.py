"""Speeds: tokens per second that a plan predicts, beside what llm-foundry and fms-fsdp published for A100 and H100.

Rows that differ only in GPU, number of GPUs and accumulation share one plan, made for the fewest GPUs among them; its
step is timed anew on each row's cluster. Of llm-foundry's plans every `EVERY`th is made, in the order of a hash of what
their rows share. A step of n micro-batches takes n times what one micro-batch takes, and one update.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from public_recipes import CannotRebuild, Row, device_of, recipe_of

import surefoot
from surefoot.costs.time_on_cluster import time_on
from surefoot.hardware import Cluster, cluster
from surefoot.records.plan import Fit, Plan
from surefoot.records.step_time import StepTime
from surefoot.records.tally import Tally
from surefoot.records.usage import Usage
from surefoot.world.gpu.target import CONTEXT_BYTES, targets

ROWS = Path(__file__).with_name("public_speeds.jsonl")
EVERY = 4
QUICK = ("mpt-215-125m-s1024-8xa100_40gb",)
SHARED = ("model", "seq_len", "micro_batch", "activation_checkpointing", "zero_stage")


@dataclass(frozen=True)
class Software:
    """What a source's rows ran with, where it decides how long a step takes."""

    attention: dict[str, str]
    """The kernel, by GPU."""
    prefetches: bool
    """Whether backward gathers the next block while it computes this one."""
    networks: dict[str, str]
    """What a node sends in bytes per second, by GPU; where it is not stated, what is assumed for the device."""


SOFTWARE = {
    "llm-foundry": Software({"A100": "flash-1", "H100": "flash-1"}, prefetches=False, networks={"A100": "200e9"}),
    "fms-fsdp": Software(
        {"A100": "flash-2", "H100": "flash-2"}, prefetches=True, networks={"A100": "50e9", "H100": "100e9"}
    ),
}
"""llm-foundry required flash-attn 1.0.3 (setup.py, May 2023), and 1.0.6 for products in float8 on the H100. Composer's
FSDP gathers a block in backward after the one before it is done (`backward_prefetch="BACKWARD_POST"`)."""


def read() -> list[Row]:
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def sampled(rows: list[Row], every: int = EVERY) -> list[list[Row]]:
    """Rows by the plan that they share; those that cannot be rebuilt one by one."""
    rebuilt = [row for row in rows if can_rebuild(row)]
    foundry, others = (
        _shared(row for row in rebuilt if (row["source"] == "llm-foundry") is of) for of in (True, False)
    )
    return foundry[::every] + others + [[row] for row in rows if row not in rebuilt]


def can_rebuild(row: Row) -> bool:
    try:
        recipe_of(row)
    except CannotRebuild:
        return False
    return True


def _shared(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows by what they share, in the order of its hash."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        shared = (*(row.get(key) for key in SHARED), *(("compiled",) if row.get("compile") else ()))
        found.setdefault(hashlib.sha256(repr(shared).encode()).hexdigest(), []).append(row)
    return [found[key] for key in sorted(found)]


def found(rows: list[Row]) -> list[Row]:
    """Rows that share a plan, each with its prediction or with the reason why there is none."""
    began = time.process_time()
    fewest = min(rows, key=lambda row: (row["n_gpus"], row["id"]))
    try:
        plan = surefoot.plan(recipe_of(fewest), on=device_of(fewest))
    except CannotRebuild as reason:
        return [told(row) | {"refused": str(reason)} for row in rows]
    return [told(row) | predicted(row, plan) | {"seconds": time.process_time() - began} for row in rows]


def told(row: Row) -> Row:
    """What identifies a row, and what it states."""
    keys = ("id", "held_out", "source", "model", "gpu", "n_gpus", "seq_len", "outcome")
    return {**{key: row[key] for key in keys}, "published": row["tokens_per_s_per_gpu"]}


def predicted(row: Row, plan: Plan) -> Row:
    """Tokens per second and GPU, how far that is from what was published, what bounds the step, and whether it fits."""
    machines = cluster(device_of(row), between_nodes=SOFTWARE[row["source"]].networks.get(gpu_of(row)))
    taken = taken_by(row, plan.steady, machines)
    tokens = tokens_per_second(row, taken)
    return {
        "predicted": tokens,
        "error_pct": 100 * (tokens / row["tokens_per_s_per_gpu"] - 1),
        "bounds": {name: each / taken.seconds for name, each in taken.bounds.items()},
        "exact_share": exact_share(row, plan.steady, machines),
        "fits": fit_of(machines, plan).fits,
    }


def gpu_of(row: Row) -> str:
    """`A100` of `A100 80GB`: the type that a factor is fitted for."""
    return row["gpu"].partition(" ")[0]


def taken_by(row: Row, step: Usage, machines: Cluster) -> StepTime:
    software = SOFTWARE[row["source"]]
    step = step if software.prefetches else without_prefetch(step)
    return time_on(machines, step, sizes_of(row), attention=software.attention[gpu_of(row)])


def tokens_per_second(row: Row, taken: StepTime) -> float:
    update = taken.phases.get("update", 0.0)
    seconds = row["grad_accum"] * (taken.seconds - update) + update
    return row["grad_accum"] * row["micro_batch"] * row["seq_len"] / seconds


def exact_share(row: Row, step: Usage, machines: Cluster) -> float:
    """The share of the dense peak with which the prediction would be what was published, between 0.2 and 1."""
    low, high = 0.2, 1.0
    for _ in range(10):
        share = (low + high) / 2
        device = replace(machines.device, achievable_share=share)
        slower = (
            tokens_per_second(row, taken_by(row, step, replace(machines, device=device))) < row["tokens_per_s_per_gpu"]
        )
        low, high = (share, high) if slower else (low, share)
    return (low + high) / 2


def fitted_shares(rows: list[Row]) -> dict[str, float]:
    """By type of GPU, the median of the shares with which rows that are not held out would be predicted exactly."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        if not row["held_out"] and "exact_share" in row:
            shares.setdefault(gpu_of(row), []).append(row["exact_share"])
    return {gpu: statistics.median(each) for gpu, each in shares.items()}


def sizes_of(row: Row) -> dict[str, int]:
    shards = 8 if row["parallelism"].startswith("HSDP") else row["n_gpus"]
    return {"tp": 1, "dp_shard": shards, "dp_replicate": row["n_gpus"] // shards}


def without_prefetch(step: Usage) -> Usage:
    """The same step, with nothing computed while backward gathers."""
    hidden = [each for each in step.tally.accounts if not _gathers_in_backward(each.name)]
    return replace(step, tally=Tally.of(hidden))


def _gathers_in_backward(account: str) -> bool:
    return account.startswith("overlap/all-gather/") and account.endswith("/backward")


def fit_of(machines: Cluster, plan: Plan) -> Fit:
    """Of the plan's memory on these devices: no less than on more of them."""
    _, target = targets(machines.name)
    memory: dict[str, Any] = {"memory_bytes": target.memory_bytes, "context_bytes": CONTEXT_BYTES}
    return Fit.of(target.name, **memory, reserved_bytes=plan.reserved_bytes)


# ------------------------------------------------------------------------------------------- what is printed

COLUMNS = f"{'row':36} {'published':>10} {'predicted':>10} {'error %':>8} fits, and what bounds the step"


def line(row: Row) -> str:
    """A row of the table, in tokens per second and GPU; `*` if it is held out."""
    name = f"{row['id'] + (' *' if row['held_out'] else ''):36} {row['published']:10.0f}"
    for word in ("refused", "crashed"):
        if word in row:
            return f"{name} {word}: {row[word]}"
    bounds = ", ".join(f"{share:.0%} {bound}" for bound, share in row["bounds"].items() if share >= 0.01)
    return f"{name} {row['predicted']:10.0f} {row['error_pct']:+8.1f} {'yes' if row['fits'] else 'no':>4}  {bounds}"


def markdown(rows: list[Row]) -> str:
    lines = ["| run | GPU | published | predicted | error % | held out |", "|---|---|---:|---:|---:|---|"]
    for row in rows:
        if "predicted" in row:
            cells = f"{row['id']} | {row['n_gpus']} x {row['gpu']} | {row['published']:.0f} | {row['predicted']:.0f}"
            lines.append(f"| {cells} | {row['error_pct']:+.1f} | {'yes' if row['held_out'] else ''} |")
    return "\n".join(lines)
