"""public_runs: the memory that `surefoot plan --on GPU` predicts, beside what published runs on that GPU took.

    python bench/public_runs.py [--quick] [--rows a,b] [--tuning | --held-out] [--out FILE] [--markdown] [--jobs N]

The rows (`public_runs.jsonl`) are runs that others measured and wrote down, each with its source and the statistic
that it names. `public_recipes.py` rebuilds the step of a row where the source says enough; a row that cannot be
rebuilt is listed with the reason. Which half is held out was decided by a hash of the rows' names, in a commit of its
own, before any prediction was made; on the other half choices were made, and only from what torch and the frameworks
document: no factor is fitted.

| statistic       | predicted                                                                     |
|-----------------|-------------------------------------------------------------------------------|
| allocated       | the peak of the caching allocator's blocks (`max_memory_allocated`)           |
| active          | the same: on one stream nothing waits to be freed                             |
| reserved        | what the allocator holds, with classic segments                               |
| device          | reserved, and the CUDA context as the source states it                        |

A row whose run was out of memory counts for `fit` alone: whether the plan says that it does not fit.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from public_recipes import CannotRebuild, Row, device_of, recipe_of
from record import write_record

import surefoot
from surefoot.records.plan import Plan

ROWS = Path(__file__).with_name("public_runs.jsonl")
QUICK = ("litgpt-res-06", "litgpt-res-09", "litgpt-hub-28", "tt-log-wandb699")
UNITS = {"GB_decimal": 1e9, "GB": 1e9, "GiB": 2**30, "MiB": 2**20}
"""torchao's GB are decimal too: its scripts divide by 1e9."""
CONTEXT_MIB = {"hf-transformers": 1343}
"""Stated by the source; part of what nvidia-smi shows."""


# ------------------------------------------------------------------------------------------- rows


def read() -> list[Row]:
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def statistic(row: Row) -> str:
    """The statistic that a row states."""
    kind = row.get("peak_mem_kind", "none")
    if kind == "nvidia_smi":
        return "device"
    if row["source"] == "torchao" and kind == "unspecified":
        return "allocated"  # its scripts print max_memory_allocated
    return kind


def published(row: Row) -> float | None:
    """The bytes that a row states; None if the run was out of memory."""
    return row["peak_mem_value"] * UNITS[row["peak_mem_unit"]] if "peak_mem_value" in row else None


def predicted(row: Row, plan: Plan) -> float:
    """What the plan says of the same statistic."""
    kind = statistic(row)
    if kind in ("allocated", "active", "none"):
        return plan.allocated_bytes["classic"]
    reserved = plan.reserved_bytes["classic"]
    return reserved + CONTEXT_MIB.get(row["source"], 0) * 2**20 if kind == "device" else reserved


def found(row: Row) -> Row:
    """A row with its prediction, or with the reason why there is none."""
    made = {"id": row["id"], "held_out": row["held_out"], "source": row["source"], "model": row["model"]}
    made |= {"task": row.get("task"), "ranks": row["n_gpus"], "sharding": row.get("parallelism", "none")}
    made |= {"statistic": statistic(row), "published_bytes": published(row), "outcome": row["outcome"]}
    began = time.process_time()
    try:
        device = device_of(row)
        plan = surefoot.plan(recipe_of(row), on=device)
    except CannotRebuild as reason:
        return made | {"refused": str(reason)}
    bytes_ = predicted(row, plan)
    error = None if made["published_bytes"] is None else 100 * (bytes_ / made["published_bytes"] - 1)
    made |= {"device": device, "predicted_bytes": bytes_, "error_pct": error, "fits": plan.fit.fits}
    return made | {
        "live_bytes": plan.live_bytes,
        "reserved_bytes": plan.reserved_bytes,
        "seconds": time.process_time() - began,
    }


# ------------------------------------------------------------------------------------------- one process each


def in_process(row: Row) -> Row:
    """What is found of a row, in a process of its own; an error is something found."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=send_found, args=(sender, row))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return {**row, "statistic": statistic(row), "crashed": "the process died"}
    finally:
        child.join()


def send_found(pipe: Any, row: Row) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        pipe.send(found(row))
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        pipe.send({**row, "statistic": statistic(row), "crashed": said})


PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["surefoot.ways.plan", "transformers.models.bert.modeling_bert"])


def measure(rows: list[Row], jobs: int) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(in_process, rows)


# ------------------------------------------------------------------------------------------- what is printed

COLUMNS = f"{'row':34} {'model':28} {'task':14} {'statistic':9} {'published':>10} {'predicted':>10} {'error %':>8} fits"


def line(row: Row) -> str:
    """A row of the table; `*` if it is held out."""
    name = row["id"] + (" *" if row["held_out"] else "")
    head = f"{name:34} {row['model'][:28]:28} {str(row.get('task'))[:14]:14} {row['statistic'][:9]:9} "
    for word in ("refused", "crashed"):
        if word in row:
            return f"{head}{word}: {row[word]}"
    error = "-" if row["error_pct"] is None else f"{row['error_pct']:+.2f}"
    fits = "yes" if row["fits"] else "no"
    return f"{head}{size(row['published_bytes'])} {size(row['predicted_bytes'])} {error:>8} {fits:>5}"


def size(amount: float | None) -> str:
    return f"{'oom' if amount is None else f'{amount / 2**30:.2f} GiB':>10}"


def spread(errors: list[float]) -> dict[str, float]:
    """The median and the ninetieth percentile of the errors' sizes."""
    sizes = sorted(map(abs, errors))
    if not sizes:
        return {"median": math.nan, "p90": math.nan, "worst": math.nan}
    return {"median": statistics.median(sizes), "p90": sizes[math.ceil(0.9 * len(sizes)) - 1], "worst": sizes[-1]}


def errors(rows: list[Row], *, held_out: bool) -> list[float]:
    return [row["error_pct"] for row in rows if row["held_out"] is held_out and row.get("error_pct") is not None]


def fits_right(rows: list[Row]) -> tuple[int, int]:
    """Of the runs with a plan: how many it says right, fit or out of memory; and how many there are."""
    planned = [row for row in rows if "fits" in row]
    return sum(row["fits"] == (row["outcome"] == "ok") for row in planned), len(planned)


def summary(rows: list[Row]) -> list[str]:
    lines = []
    for held_out, name in ((True, "held out"), (False, "tuned on")):
        of, told = errors(rows, held_out=held_out), spread(errors(rows, held_out=held_out))
        figures = f"median {told['median']:.2f}%, 90% within {told['p90']:.2f}%, worst {told['worst']:.2f}%"
        lines.append(f"{name}: {len(of)} rows, {figures}")
    right, planned = fits_right(rows)
    refused, crashed = (sum(word in row for row in rows) for word in ("refused", "crashed"))
    lines.append(f"fit: {right} of {planned} right; {refused} rows not rebuilt, {crashed} crashed")
    return lines


def result(rows: list[Row]) -> str:
    told, (right, planned) = spread(errors(rows, held_out=True)), fits_right(rows)
    share = right / planned if planned else math.nan
    return f"RESULT heldout_median_pct={told['median']:.2f} heldout_p90_pct={told['p90']:.2f} fit_right={share:.3f}"


def markdown(rows: list[Row]) -> str:
    names = ("run", "model", "task", "statistic", "published GiB", "predicted GiB", "error %", "held out")
    lines = ["| " + " | ".join(names) + " |", "|---|---|---|---|---:|---:|---:|---|"]
    for row in rows:
        if row.get("error_pct") is not None:
            amounts = f"{row['published_bytes'] / 2**30:.2f} | {row['predicted_bytes'] / 2**30:.2f}"
            held = "yes" if row["held_out"] else ""
            cells = f"{row['id']} | {row['model']} | {row['task']} | {row['statistic']} | {amounts}"
            lines.append(f"| {cells} | {row['error_pct']:+.2f} | {held} |")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------- the record


def write(path: Path, rows: list[Row]) -> None:
    write_record(path, {"rows": rows, "summary": summary(rows), "result": result(rows)})


# ------------------------------------------------------------------------------------------- the command


def chosen(arguments: argparse.Namespace) -> list[Row]:
    """The rows asked for; unknown names list the known ones."""
    rows = {row["id"]: row for row in read()}
    names = arguments.rows.split(",") if arguments.rows else QUICK if arguments.quick else list(rows)
    if unknown := set(names) - set(rows):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(rows)}")
    wanted = [rows[name] for name in names]
    if arguments.tuning or arguments.held_out:
        wanted = [row for row in wanted if row["held_out"] is arguments.held_out]
    return wanted


def install_transformers(rows: list[Row]) -> None:
    if any(row["source"] == "hf-transformers" for row in rows) and importlib.util.find_spec("transformers") is None:
        print("installing transformers, which BERT comes from", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "transformers"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rows that can be rebuilt, and one that cannot")
    parser.add_argument("--rows", help="only these, separated by commas")
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--tuning", action="store_true", help="only the half that choices were made on")
    half.add_argument("--held-out", action="store_true", help="only the other half")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--markdown", action="store_true", help="also print the table as markdown")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    arguments = parser.parse_args()
    rows = chosen(arguments)
    install_transformers(rows)
    print(COLUMNS)
    seen = []
    for row in measure(rows, arguments.jobs):
        print(line(row), flush=True)
        seen.append(row)
        if arguments.out:
            write(arguments.out, seen)
    print("error in percent of what was published, * held out")
    for text in summary(seen):
        print(text)
    if arguments.markdown:
        print("\n" + markdown(seen) + "\n")
    print(result(seen))


if __name__ == "__main__":
    main()
