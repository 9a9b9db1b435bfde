"""public_fp8: published runs in FP8 beside `surefoot plan`, apart from the runs that constants were fitted to.

    python bench/public_fp8.py [--rows a,b] [--out FILE]

The rows are those of `public_speeds.jsonl` that torchtitan ran in float8 under FSDP2 alone, compiled, with surefoot's
way of scaling and gathering. The recipe of a row is that of `public_recipes.py`, with `precision=fp8`. Before each
stands its twin in bfloat16, if the same table has one. Nothing was fitted to a row in FP8; the constants of plans were
fitted to the twins. Memory is that of the step as written, which for a compiled step is a bound from above.

Other published rows in FP8 cut layers (`tp`), tokens or pipelines as well, or do not state their step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import public_speeds as speeds
from public_recipes import CannotRebuild, Row, recipe_of
from record import write_record

import surefoot
from surefoot.costs.time_on_cluster import time_on
from surefoot.hardware import cluster
from surefoot.records.plan import Plan

TWINS = {"tt-202412-t1-3": "tt-202412-t1-2", "tt-202412-t3-3": "tt-202412-t3-2"}
"""The row in bfloat16 that differs in nothing else."""


PRECISIONS = {"float8 rowwise": "fp8-rowwise", "float8": "fp8"}
ROWS = {row["id"]: row for row in speeds.read()}
PLANS: dict[tuple[object, ...], Plan] = {}


@dataclass(frozen=True)
class Found:
    """A published run and its plan: tokens per second and GPU, and bytes reserved."""

    id: str
    gpu: str
    published: float
    predicted: float
    published_bytes: float
    predicted_bytes: int
    inside: bool

    @property
    def error_pct(self) -> float:
        return 100 * (self.predicted / self.published - 1)

    @property
    def memory_error_pct(self) -> float:
        return 100 * (self.predicted_bytes / self.published_bytes - 1)


OTHERWISE = ("no float8 all-gather", "force_recompute", "delayed", "dynamic scaling")
"""Ways of scaling and gathering that surefoot has not, or that do not say which they are."""


def expressible(row: Row) -> bool:
    how = row.get("precision", "")
    alone = row["source"] == "torchtitan" and row.get("parallelism") == "FSDP2" and row.get("compile") is True
    usual = "SAC policy" not in row.get("extra", "") and "SAC without" not in row.get("extra", "")
    return alone and usual and "float8" in how and not any(word in how for word in OTHERWISE)


def planned(row: Row, device: str, precision: str) -> Plan:
    """The plan of a row. Rows with one step share it."""
    step = (row["model"], row["seq_len"], row["micro_batch"], row.get("extra"), device, precision)
    if step not in PLANS:
        recipe = recipe_of(row | {"precision": "bf16"}, timed=True)
        PLANS[step] = surefoot.plan(replace(recipe, precision=precision), on=device, resume=False)
    return PLANS[step]


def device_of(row: Row) -> str:
    return f"{row['n_gpus']}x{'h200-sxm' if row['gpu'] == 'H200' else 'h100-hbm2e-96gb'}"


def found(row: Row) -> Found:
    precision = next((ours for word, ours in PRECISIONS.items() if word in row["precision"]), "bf16-mixed")
    device = device_of(row)
    plan = planned(row, device, precision)
    network = (speeds.software_of(row).networks or {}).get(speeds.gpu_of(row))
    machines = cluster(device, between_nodes=network)
    attention = speeds.software_of(row).attention.get(speeds.gpu_of(row), "")
    taken = time_on(machines, plan.steady, speeds.sizes_of(row), attention=attention)
    seconds = speeds.tokens_of(row) / speeds.published(row)
    return Found(
        row["id"],
        device,
        speeds.published(row),
        speeds.tokens_of(row) / taken.seconds,
        row["peak_mem_value"] * 2**30,
        plan.reserved_bytes["expandable"],
        taken.interval is not None and taken.interval.low_seconds <= seconds <= taken.interval.high_seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="only these, separated by commas")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    wanted = arguments.rows.split(",") if arguments.rows else list(ROWS)
    made = []
    for row in (ROWS[name] for name in wanted if expressible(ROWS[name])):
        for name in filter(None, (TWINS.get(row["id"]), row["id"])):
            try:
                each = found(ROWS[name])
            except CannotRebuild as reason:
                print(f"{name}: not rebuilt: {reason}")
                continue
            made.append(each)
            memory = f"{each.published_bytes / 2**30:.1f} GiB {each.memory_error_pct:+.1f}%"
            inside = "inside" if each.inside else "outside"
            speed = f"{each.published:6.0f} {each.predicted:6.0f} {each.error_pct:+6.1f}% {inside:8}"
            print(f"{each.id:16} {each.gpu:20} {speed} {memory}", flush=True)
    eight = [each for each in made if each.id not in TWINS.values()]
    if not eight:
        parser.error("no row that was asked for can be rebuilt")
    error = statistics.median(abs(each.error_pct) for each in eight)
    memory = statistics.median(abs(each.memory_error_pct) for each in eight)
    if arguments.out:
        write_record(arguments.out, {"rows": [asdict(each) for each in made]})
    print(json.dumps({"rows": len(eight), "median_error_pct": round(error, 1), "memory_pct": round(memory, 1)}))


if __name__ == "__main__":
    main()
