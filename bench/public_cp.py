"""public_cp: published runs with context parallel beside `surefoot plan`, apart from those that fitted its constants.

    python bench/public_cp.py [--rows a,b] [--out FILE]

The rows are table 2 of torchtitan's report of December 2024 in `public_speeds.jsonl`: Llama 3.1 8B on 8 H100, contexts
of 32,768 to 262,144 tokens, FSDP2 x CP, full recomputation, compiled, float8. torchtitan sent keys and values around a
ring; surefoot gathers them (`keys`) or shares out heads (`heads`), so the rows say how far a plan of these is from what
was reached by the ring. Both are planned with flash attention 2, which torchtitan asked for. Scales are by row where
tokens are cut, since one scale for a tensor is refused there.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import public_speeds as speeds
from public_recipes import Row
from record import write_record

import surefoot
from surefoot import load_recipe
from surefoot.costs.time_on_cluster import time_on
from surefoot.hardware import cluster

DEVICE = "h100-hbm2e-96gb"
ROWS = {row["id"]: row for row in speeds.read() if row.get("parallelism") == "FSDP2+CP" and row["n_gpus"] == 8}


@dataclass(frozen=True)
class Found:
    """A published run and a plan: tokens per second and GPU, and bytes reserved."""

    id: str
    context: int
    layout: str
    by: str
    published: float
    predicted: float
    inside: bool
    published_bytes: float
    predicted_bytes: int


def words_of(row: Row, by: str) -> list[str]:
    cp = row["n_gpus"] // row["dp_shard"]
    cut = [f"cp={cp}", f"cp_by={by}", "precision=fp8-rowwise"] if cp > 1 else ["precision=fp8"]
    return ["size=8b", f"context={row['seq_len']}", "recompute=full", "compile=blocks", *cut]


def found(row: Row, by: str) -> Found:
    plan = surefoot.plan(load_recipe("llama", words_of(row, by)), on=f"{row['n_gpus']}x{DEVICE}", resume=False)
    cp = row["n_gpus"] // row["dp_shard"]
    sizes = {"tp": 1, "cp": cp, "dp_shard": row["dp_shard"], "dp_replicate": 1}
    attention = speeds.software_of(row).attention[speeds.gpu_of(row)]
    taken = time_on(cluster(f"{row['n_gpus']}x{DEVICE}"), plan.steady, sizes, attention=attention)
    assert taken.interval is not None
    tokens = plan.tokens_per_step / row["n_gpus"]
    seconds = tokens / speeds.published(row)
    return Found(
        row["id"],
        row["seq_len"],
        plan.layout,
        by,
        speeds.published(row),
        tokens / taken.seconds,
        taken.interval.low_seconds <= seconds <= taken.interval.high_seconds,
        row["peak_mem_value"] * 2**30,
        plan.reserved_bytes["expandable"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="only these, separated by commas")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    made = []
    for name in arguments.rows.split(",") if arguments.rows else ROWS:
        row = ROWS[name]
        for by in ("keys", "heads") if row["dp_shard"] < row["n_gpus"] else ("",):
            each = found(row, by)
            made.append(each)
            speed = f"{each.published:6.0f} {each.predicted:6.0f} {100 * (each.predicted / each.published - 1):+7.1f}%"
            memory = f"{each.published_bytes / 2**30:.1f} {each.predicted_bytes / 2**30:.1f} GiB"
            where = "inside" if each.inside else "outside"
            print(f"{each.id} {each.context:7} {each.layout:16} {by:6} {speed} {where:8} {memory}", flush=True)
    if arguments.out:
        write_record(arguments.out, {"rows": [asdict(each) for each in made]})


if __name__ == "__main__":
    main()
