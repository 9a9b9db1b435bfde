"""Predicted seconds of a step against the step itself, on this machine.

The machine is measured once (`surefoot hardware measure`); then each case, in a process of its own, is predicted in
three ways and run: FLOPs over the rate of the fastest matrix product; the roofline of what was measured (`surefoot plan
--on here`); and each distinct operator call timed (`surefoot plan --measure`). Nothing of a case is known before its
prediction is made, and nothing is fitted to it. Steps are timed on batches that are there already; beside their median
stands their own spread, half of what lies between the 10th and the 90th of a hundred. A machine's pace drifts within
seconds, so rounds of the rehearsal and steps take turns; neither knows of the other.

The models of `time_cases.py` that are held out are run; with `--tuning`, those on which choices were made.

    python bench/plan_time.py [--quick] [--tuning] [--cpu] [--markdown] [CASE ...]

With `--cpu`, one thread and its processor seconds are counted everywhere instead: for a machine that others use too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from time_cases import HELD_OUT, SETTINGS, TUNING

QUICK = ("resnet/fp32", "lstm/bf16-mixed", "gpt_sdpa/bf16-mixed")
WARM_TURNS, LEAST_TURNS, MOST_TURNS, SECONDS = 3, 12, 40, 5.0
WAYS = {"flops_only": "FLOPs only", "roofline": "roofline", "measured": "--measure"}


def main() -> None:
    options = _options()
    if options.case:
        print(json.dumps(_case(options.case, _clock(options.cpu))))
        return
    models = TUNING if options.tuning else HELD_OUT
    cases = options.cases or (QUICK if options.quick else [f"{model}/{way}" for model in models for way in SETTINGS])
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder, **({"OMP_NUM_THREADS": "1"} if options.cpu else {})}
        sheet = _run("--calibrate", cpu=options.cpu, environment=environment)
        rows = []
        for case in cases:
            rows.append(_run("--case", case, cpu=options.cpu, environment=environment))
            if not options.markdown:
                print(_line(rows[-1]), flush=True)
    if options.markdown:
        print("\n".join(_markdown(rows)))
    from record import write_record

    clock = "processor seconds, one thread" if options.cpu else "wall"
    result = _result(rows)
    write_record(options.out, {"clock": clock, "here": sheet, "cases": rows, "result": result})
    print("all: " + ", ".join(f"{name} {value:.1f}" for name, value in result.items()))
    shown = ("median_pct", "worst_pct", "flops_only_median_pct")
    print("RESULT " + " ".join(f"{name}={result[name]:.1f}" for name in shown))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="such as vit/fp32; all, if none is named")
    parser.add_argument("--quick", action="store_true", help="three cases")
    parser.add_argument("--tuning", action="store_true", help="the models on which choices were made")
    parser.add_argument("--cpu", action="store_true", help="processor seconds of one thread instead of wall seconds")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/measured/step-time.md")
    parser.add_argument("--out", type=Path, default=Path("plan_time.json"), help="where the record goes")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--calibrate", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calibrate:
        print(json.dumps(_calibrated(_clock(options.cpu))))
        raise SystemExit
    return options


def _clock(cpu: bool) -> Callable[[], float]:
    return time.process_time if cpu else time.perf_counter


def _run(*words: str, cpu: bool, environment: dict[str, str]) -> dict[str, Any]:
    """This file in a process of its own; what it prints."""
    command = [sys.executable, __file__, *words, *(["--cpu"] if cpu else [])]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


# ------------------------------------------------------------------------------------------- in a process of its own


def _calibrated(clock: Callable[[], float]) -> dict[str, Any]:
    from surefoot.hardware.here import keep_here
    from surefoot.planning.timing.measure import measure_here

    sheet = measure_here(clock=clock)
    keep_here(sheet)
    return asdict(sheet)


def _case(case: str, clock: Callable[[], float]) -> dict[str, Any]:
    from memory_cases import case_recipe, model_of

    from surefoot.costs.rehearsed import rehearsed_time
    from surefoot.costs.roofline import ceilings_of, step_time
    from surefoot.hardware.here import here
    from surefoot.planning.fake_step import Tracing
    from surefoot.planning.mfu import FORMATS
    from surefoot.planning.timing.rehearse import Rehearsal

    recipe, sheet = case_recipe(case), here()
    with Tracing(recipe, work=True, script=True) as tracing:
        traced = tracing.traced()
    rehearsal = Rehearsal(traced.script, clock=clock)
    steps = sorted(_in_turns(rehearsal.go_through, _step(recipe), clock))
    measured = rehearsed_time(rehearsal.timed(), sheet.call_seconds)
    predicted = {
        "flops_only": traced.steady.tally.total("flops") / sheet.reached_flops[FORMATS.get(recipe.precision, "fp32")],
        "roofline": step_time(traced.steady.work, ceilings_of(sheet)).seconds,
        "measured": measured.seconds,
    }
    low, middle, high = (steps[round(share * (len(steps) - 1))] for share in (0.1, 0.5, 0.9))
    return {
        "case": case,
        "held_out": model_of(case) in HELD_OUT,
        "steps": len(steps),
        "seconds": middle,
        "spread_pct": 50 * (high - low) / middle,
        "predicted": predicted,
        "error_pct": {way: 100 * (seconds / middle - 1) for way, seconds in predicted.items()},
        "phases": measured.phases,
    }


def _step(recipe: Any) -> Callable[[], object]:
    """A real step, on batches that are there already."""
    from surefoot.data.batches import batches_of
    from surefoot.step import Step
    from surefoot.world.world import World

    world = World()
    step, batches = Step(recipe, world), batches_of(recipe, rank=0, ranks=1)
    taken = itertools.cycle([[world.take(batches) for _ in range(step.micro_batches)] for _ in range(3)])
    return lambda: step(iter(next(taken)))


def _in_turns(rehearse: Callable[[], None], step: Callable[[], object], clock: Callable[[], float]) -> Iterator[float]:
    """Seconds of steps, each after a round of the rehearsal; the first ones warm up."""
    began = clock()
    for turn in range(WARM_TURNS + MOST_TURNS):
        rehearse()
        start = clock()
        step()
        if turn >= WARM_TURNS:
            yield clock() - start
        if turn >= WARM_TURNS + LEAST_TURNS and clock() - began > SECONDS:
            return


# ------------------------------------------------------------------------------------------- what is printed


def _line(row: dict[str, Any]) -> str:
    errors = " ".join(f"{name} {row['error_pct'][way]:+6.1f}%" for way, name in WAYS.items())
    held_out = "held out" if row["held_out"] else ""
    return f"{row['case']:24} {1e3 * row['seconds']:7.1f} ms, spread {row['spread_pct']:4.1f}% | {errors} | {held_out}"


def _markdown(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| case | step, ms | own spread | FLOPs only | roofline | `--measure` | held out |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for row in rows:
        errors = " | ".join(f"{row['error_pct'][way]:+.1f}%" for way in WAYS)
        held_out = "yes" if row["held_out"] else ""
        yield f"| {row['case']} | {1e3 * row['seconds']:.1f} | {row['spread_pct']:.1f}% | {errors} | {held_out} |"


def _result(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of the held-out cases; of all, where none was asked for."""
    judged = [row for row in rows if row["held_out"]] or rows
    errors = {way: [abs(row["error_pct"][way]) for row in judged] for way in WAYS}
    return {
        "median_pct": statistics.median(errors["measured"]),
        "worst_pct": max(errors["measured"]),
        "flops_only_median_pct": statistics.median(errors["flops_only"]),
        "roofline_median_pct": statistics.median(errors["roofline"]),
        "roofline_worst_pct": max(errors["roofline"]),
        "cases": len(judged),
    }


if __name__ == "__main__":
    main()
