"""public_runs: memory and speed that `surefoot plan --on GPU` predicts, beside what published runs on that GPU took.

    python bench/public_runs.py [--quick] [--rows a,b] [--tuning | --held-out | --speeds] [--every N] [--plans DIR]
                                [--out FILE] [--markdown] [--write-constants]

The rows are runs that others measured and wrote down, each with its source: memory (`public_runs.jsonl`), whether it
fits (`public_fits.jsonl`), tokens per second (`public_speeds.jsonl`). `public_recipes.py` rebuilds the step of a row
where the source says enough; a row that cannot be rebuilt is listed with the reason. There is no GPU here: published
figures are all that plans are held against.

Of memory, half is held out by a hash of the rows' names; on the other half choices were made, and only from what torch
and the frameworks document: no factor is fitted. Speeds are held out by source, framework and lab: a source is
predicted with constants that were fitted to all others (`public_fit.py`). `--write-constants` fits them to all sources
and writes them, and the spread of the held-out errors, where `surefoot plan` reads them.

| statistic       | predicted                                                                     |
|-----------------|-------------------------------------------------------------------------------|
| allocated       | the peak of the caching allocator's blocks (`max_memory_allocated`)           |
| active          | the same: nothing waits to be freed                                           |
| reserved        | what the allocator holds, each stream apart; with the segments of the run     |
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import public_fit as fit
import public_speeds as speeds
import torch
from public_recipes import CannotRebuild, Row, device_of, recipe_of
from record import write_record

import surefoot
from surefoot.records.plan import Plan

FILES = ("public_runs.jsonl", "public_fits.jsonl")
QUICK = ("litgpt-res-06", "litgpt-res-09", "litgpt-hub-16", "tt-log-wandb699")
NEIGHBOURS = (
    ("tt-log-reshard-never", "tt-log-reshard-default"),
    ("tt-log-reshard-never", "tt-log-reshard-always"),
    ("tt-202412-t1-1", "tt-202412-t3-1"),
)
"""Runs that differ in one knob."""
UNITS = {"GB_decimal": 1e9, "GB": 1e9, "GiB": 2**30, "MiB": 2**20}
"""torchao's GB are decimal too: its scripts divide by 1e9."""
CONTEXT_MIB = {"hf-transformers": 1343}
"""Stated by the source; part of what nvidia-smi shows."""


# ------------------------------------------------------------------------------------------- rows


def read() -> list[Row]:
    texts = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in FILES)
    return [json.loads(line) for text in texts for line in text.splitlines()]


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
    return row["peak_mem_value"] * UNITS[row["peak_mem_unit"]] if row["outcome"] == "ok" else None


def segments(row: Row) -> str:
    """torchtitan's script for starting runs asks for expandable segments since 2024; before, and elsewhere: torch's."""
    return "expandable" if row["source"] == "torchtitan" and not row["id"].startswith("tt-165-") else "classic"


def predicted(row: Row, plan: Plan) -> float:
    """What the plan says of the same statistic."""
    kind = statistic(row)
    if kind in ("allocated", "active", "none"):
        return plan.allocated_bytes["classic"]
    reserved = plan.reserved_bytes[segments(row)]
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


def in_process(row: Row | list[Row]) -> list[Row]:
    """What is found of a row, or of rows that share a plan, in a process of its own; an error is something found."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=send_found, args=(sender, row))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return crashed(row, "the process died")
    finally:
        child.join()


def send_found(pipe: Any, row: Row | list[Row]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        pipe.send(speeds.found(row) if isinstance(row, list) else [found(row)])
    except Exception as error:
        pipe.send(crashed(row, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"))


def crashed(row: Row | list[Row], why: str) -> list[Row]:
    if isinstance(row, list):
        return [speeds.told(each) | {"crashed": why} for each in row]
    return [{**row, "statistic": statistic(row), "crashed": why}]


PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["surefoot.ways.plan", "transformers.models.bert.modeling_bert"])


def measure(rows: Sequence[Row | list[Row]], jobs: int, plans: Path | None = None) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        for several in pool.map(lambda each: kept(each, plans), rows):
            yield from several


def kept(rows: Row | list[Row], plans: Path | None) -> list[Row]:
    """What is found of rows, from a file in `plans` if it was found before by the same code."""
    if plans is None or not isinstance(rows, list):
        return in_process(rows)
    file, asked = plans / f"{speeds.key_of(rows[0])}.json", {row["id"] for row in rows}
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    if not asked <= {row["id"] for row in known}:
        known = in_process(rows)
        if any("crashed" in each for each in known):
            return known
        plans.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known), encoding="utf-8")
    return [row for row in known if row["id"] in asked]


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


def figures(of: list[float]) -> str:
    told = spread(of)
    return f"{len(of)} rows, median {told['median']:.2f}%, 90% within {told['p90']:.2f}%, worst {told['worst']:.2f}%"


def summary(memory: list[Row], timed: list[Row]) -> list[str]:
    lines = []
    for held_out, name in ((True, "held out"), (False, "tuned on")):
        if of := errors(memory, held_out=held_out):
            lines.append(f"memory, {name}: {figures(of)}")
    lines += fit.by_lab(timed)
    lines += differences({row["id"]: row for row in memory if row.get("error_pct") is not None})
    right, planned = fits_right(memory + timed)
    wrong = [row["id"] for row in memory + timed if "fits" in row and row["fits"] != (row["outcome"] == "ok")]
    lines.append(f"fit: {right} of {planned} right; wrong: {', '.join(wrong) or 'none'}")
    refused, crashed = (sum(word in row for row in memory + timed) for word in ("refused", "crashed"))
    lines.append(f"memory: {refused} rows not rebuilt; {crashed} crashed")
    return lines


def differences(known: dict[str, Row]) -> list[str]:
    """Between runs that differ in one knob."""
    lines = []
    for one, other in NEIGHBOURS:
        if one in known and other in known:
            told, seen = (known[one][key] - known[other][key] for key in ("predicted_bytes", "published_bytes"))
            lines.append(f"{one} - {other}: published {size(seen).strip()}, predicted {size(told).strip()}")
    return lines


def result(memory: list[Row], timed: list[Row]) -> str:
    planned = [row for row in timed if "error_pct" in row]
    told, (right, counted) = spread([row["error_pct"] for row in planned]), fits_right(memory + timed)
    covers = sum(row["inside"] for row in planned) / len(planned) if planned else math.nan
    bytes_ = spread(errors(memory, held_out=True))
    share = right / counted if counted else math.nan
    return (
        f"RESULT source_heldout_median_pct={told['median']:.2f} p90={told['p90']:.2f} interval_covers={covers:.3f} "
        f"fit_right={share:.3f} memory_heldout_median_pct={bytes_['median']:.2f} "
        f"memory_heldout_p90_pct={bytes_['p90']:.2f}"
    )


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


def write(path: Path, memory: list[Row], timed: list[Row]) -> None:
    told = {"summary": summary(memory, timed), "result": result(memory, timed)}
    write_record(path, {"rows": memory, "speeds": timed, **told})


# ------------------------------------------------------------------------------------------- the command


def chosen(arguments: argparse.Namespace) -> tuple[list[Row], list[list[Row]], list[Row]]:
    """The rows asked for, those of speeds by the plan that they share, and those of speeds that are not rebuilt."""
    rows, timed = ({row["id"]: row for row in each} for each in (read(), speeds.read()))
    named = arguments.rows.split(",") if arguments.rows else [*QUICK, *speeds.QUICK] if arguments.quick else None
    if unknown := set(named or ()) - set(rows) - set(timed):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join((*rows, *timed))}")

    def wanted(row: Row) -> bool:
        half = not (arguments.tuning or arguments.held_out) or row["held_out"] is arguments.held_out
        return not arguments.speeds and half and (named is None or row["id"] in named)

    if arguments.tuning or arguments.held_out:
        return list(filter(wanted, rows.values())), [], []
    asked = [row for row in timed.values() if named is None or row["id"] in named]
    groups, refused = speeds.sampled(asked, arguments.every if named is None else 1)
    return list(filter(wanted, rows.values())), groups, refused


def install_transformers(rows: list[Row]) -> None:
    if any(row["source"] == "hf-transformers" for row in rows) and importlib.util.find_spec("transformers") is None:
        print("installing transformers, which BERT comes from", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "transformers"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few rows of each kind, and one that cannot be rebuilt")
    parser.add_argument("--rows", help="only these, separated by commas")
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--tuning", action="store_true", help="of memory, only the half that choices were made on")
    half.add_argument("--held-out", action="store_true", help="of memory, only the other half")
    half.add_argument("--speeds", action="store_true", help="only speeds")
    parser.add_argument("--every", type=int, default=speeds.EVERY, help="of llm-foundry's plans, make every so manieth")
    parser.add_argument("--plans", type=Path, help="keep the plans of speeds in this directory, and use those in it")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--markdown", action="store_true", help="also print the table as markdown")
    parser.add_argument("--write-constants", action="store_true", help="write the constants that plans use")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    arguments = parser.parse_args()
    rows, groups, refused = chosen(arguments)
    install_transformers([*rows, *(row for group in groups for row in group)])
    memory: list[Row] = []
    print(COLUMNS)
    for row in measure(rows, arguments.jobs):
        print(line(row), flush=True)
        memory.append(row)
    stated = {row["id"]: row for group in groups for row in group}
    planned = list(measure(groups, arguments.jobs, arguments.plans))
    made = [fit.Timed(stated[row["id"]], row) for row in planned if "crashed" not in row]
    timed = fit.predicted(made) + [row for row in planned if "crashed" in row]
    print(speeds.COLUMNS)
    for row in timed:
        print(speeds.line(row))
    print("error in percent of what was published; * held out of memory")
    if len({row.lab for row in made}) < fit.LABS:
        print("few sources: speeds are predicted with the constants that plans use, and nothing is held out")
    for text in (*speeds.reasons(refused), *summary(memory, timed)):
        print(text)
    if arguments.out:
        write(arguments.out, memory, timed)
    if arguments.markdown:
        print("\n" + markdown(memory) + "\n\n" + speeds.markdown(timed) + "\n")
    if arguments.write_constants:
        fit.write_constants(made)
    print(result(memory, timed))


if __name__ == "__main__":
    main()
