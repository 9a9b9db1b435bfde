"""plan_families: how many kinds of models and training steps `surefoot.plan` can plan, and how exactly.

    python bench/plan_families.py [--quick] [--held-out] [--only a,b | --slice I/N] [--out FILE] [--append]
    python bench/plan_families.py --families tuning|held_out|all [--quick] [--twice] [--out FILE]
    python bench/plan_families.py --explain CASE
    python bench/plan_families.py --list

Cases: every family of transformers that has a loss and builds small from its config class (`families_transformers.py`),
families of vision models (`families_vision.py`), shapes of training steps (`families_steps.py`), and methods of
fine-tuning (`families_finetune.py`). `--held-out` takes the other tasks of each family of transformers instead.
`--quick` draws cases at random, anew every day, and begins none after its time is up.

`--families` takes recipes from the shapes of real projects (`families.py`) instead: twenty families, ten to tune the
planner on and ten held out. `held_out` selects exactly the recipes of `families_held_out_*.py`: kinds of projects that
the planner was not tuned on, written separately, checked only by real steps, and never planned by their author. They
show how the planner does on what it has not met. Do not look at one to fix the planner: a family that was looked at
belongs to `tuning`. `--only` adds to it: `--families tuning --only odes`.

Each case has a process of its own, with one thread and a limit of seconds of the processor. It takes three real steps
under the counting allocator, or as many as its family asks for, and then makes the plan from a recipe that is built
anew. What is compared is the first step, and the highest peak of all later ones: a plan that knows only the second step
is too low if the fifth takes more.

| planned        | of the cases whose real steps run, the share that has a plan                                        |
| within_0_1pct  | of the planned ones, the share whose plan of a later step is within 0.1% of the allocator's highest |
|                | peak; of fine-tuning, within 0.02%, with 4-bit layers within 0.5%                                   |
| silent         | plans that are further off, without an assumption that says that something is not validated         |
| silent_too_low | plans that are too low by more than 0.1%, in the first step or in a later one, and do not say so    |
| tracebacks     | plans that end in anything but an error of surefoot, which names the reason in one line             |
| dies, times_out| cases without a plan: an error of any kind, and the time limit                                      |
| off_said, off_silent, too_low | plans that are off: said; silently; and, of both, those that are too low             |

A case whose real step fails, takes too long, or has a loss that is not finite, shows nothing about the plan. It is
listed and not counted.

`--twice` plans each case three times and compares every byte of the plans: in a new process, once more in that process,
and in another one whose clock runs 20 times as fast, as on a machine that is slow.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: some kernels take a buffer for each thread
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

import families
import families_finetune
import families_steps
import families_transformers
import families_vision
import torch
from plan_memory import LOOKS, STEPS, compare_calls, fake_calls, percent, real_calls
from record import write_record

from surefoot import Recipe
from surefoot.data.batches import batches_of
from surefoot.errors import SurefootError
from surefoot.meters import allocator
from surefoot.step import Step
from surefoot.world.world import World

LIMIT_SECONDS, LIMIT_TIMES = 60, 10
"""Of the processor for each look; and how many times as long the clock may take, if the machine has other work."""
QUICK, QUICK_SECONDS = 12, 40
SLOWER = 20
WITHIN_PCT = 0.1
SAID = "not validated"
"""What an assumption says of memory that is only estimated."""
TIMED_OUT = f"took over {LIMIT_SECONDS} s of the processor"
VERDICTS = ("within", "said", "silent miss", "no plan", "traceback", "timed out")


# ------------------------------------------------------------------------------------------- cases


def case_names(*, held_out: bool = False, side: str | None = None) -> list[str]:
    if side:
        return families.case_names(side)
    if held_out:
        return families_transformers.case_names(held_out=True)
    steps = [f"step/{name}" for name in families_steps.STEPS]
    tuned = families_finetune.case_names()
    return [*steps, *tuned, *families_vision.vision_names(), *families_transformers.case_names()]


def case_recipe(case: str) -> Recipe:
    kind, _, name = case.partition("/")
    if (shape := families.shape_of(case)) is not None:
        torch.manual_seed(0)
        return shape.build()
    if kind == "step":
        torch.manual_seed(0)
        return families_steps.STEPS[name]()
    if kind == "finetune":
        return families_finetune.case_recipe(case)
    return (families_vision if kind in ("vision", "timm") else families_transformers).case_recipe(case)


# ------------------------------------------------------------------------------------------- one process each


def processes() -> Any:
    """Children that are forked from a server which has loaded torch and transformers and has computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["plan_memory", "families", "families_steps", "families_vision", "families_preload"])
    return context


PROCESSES = processes()


def look_at(look: str, case: str, *, faster: int = 1) -> dict[str, Any]:
    """What a look at a case found, in a process of its own. An error is something found."""
    return next(looks_at((look,), case, faster=faster))


def looks_at(looks: tuple[str, ...], case: str, *, faster: int = 1) -> Iterator[dict[str, Any]]:
    """What several looks found, one after the other in one process. An error is something found, and ends it."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=send, args=(sender, looks, case, faster))
    child.start()
    sender.close()
    try:
        for _ in looks:
            began = time.monotonic()
            try:
                found = receiver.recv() if receiver.poll(LIMIT_SECONDS * LIMIT_TIMES) else {"error": TIMED_OUT}
            except EOFError:
                child.join()
                died = f"the process died with exit code {child.exitcode}"
                found = {"error": TIMED_OUT if child.exitcode == -signal.SIGXCPU else died}
            yield {"seconds": round(time.monotonic() - began, 1), **found}
            if "error" in found:
                return
    finally:
        child.kill()
        child.join()


def send(pipe: Any, looks: tuple[str, ...], case: str, faster: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries write there while they build models
    run_clocks(faster)
    for look in looks:
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = math.ceil(used.ru_utime + used.ru_stime) + LIMIT_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        began = time.process_time()
        found = look_here(look, case)
        pipe.send({**found, "seconds": round((time.process_time() - began) / faster, 1)})


def run_clocks(faster: int) -> None:
    """Makes all clocks run faster: whatever is given up after so many seconds meets a machine that is slow."""
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time"):
        plain = getattr(time, name)
        setattr(time, name, functools.partial(fast, plain, plain(), faster))


def fast(clock: Callable[[], float], began: float, faster: int) -> float:
    return began + faster * (clock() - began)


def look_here(look: str, case: str) -> dict[str, Any]:
    looks = {**LOOKS, "real": real_calls, "fake": fake_calls}
    try:
        if look == "truth" and (shape := families.shape_of(case)) is not None:
            return truth(case_recipe(case), shape.steps)
        return looks[look](case_recipe(case))
    except SurefootError as error:
        return {"error": str(error), "refused": "\n" not in str(error)}
    except Exception as error:
        import traceback

        where = traceback.extract_tb(error.__traceback__)
        places = [f"{Path(each.filename).name}:{each.lineno}" for each in where[-4:]]
        text = " ".join(str(error).split())[:300]
        return {"error": f"{type(error).__name__}: {text}", "places": places}


# ------------------------------------------------------------------------------------------- rows


def truth(recipe: Recipe, steps: int) -> dict[str, Any]:
    """Real steps under the counting allocator: the peak of the first, and the highest of all others."""
    allocator.install()
    world = World()
    batches = batches_of(recipe)
    baseline = allocator.live_bytes()
    step = Step(recipe, world)
    peaks, losses = [], []
    for _ in range(steps):
        allocator.reset_peak()
        outcome = step(world.take(batches) for _ in range(recipe.micro_batches()))
        peaks.append(allocator.peak_bytes() - baseline)
        losses.append(float(outcome.loss))
        del outcome
    if not all(map(math.isfinite, losses)):
        raise RuntimeError(f"a loss is not finite: {losses}")
    first, second, *_ = peaks
    return {"first": {"step": first}, "second": {"step": second}, "steady": {"step": max(peaks[1:])}, "peaks": peaks}


def row(case: str) -> dict[str, Any]:
    """A case, what was found, and the verdict."""
    looks = looks_at(("truth", "predicted"), case)
    true = next(looks)
    made: dict[str, Any] = {"case": case, "seconds": true["seconds"], "truth": true}
    if "error" in true:
        return {**made, "verdict": "refused" if is_refused_recipe(case, true) else "inconclusive"}
    plan = made["predicted"] = next(looks)
    looks.close()
    made["seconds"] = round(made["seconds"] + plan["seconds"], 1)
    if "error" in plan:
        if plan["error"] == TIMED_OUT:
            return {**made, "verdict": "timed out"}
        return {**made, "verdict": "no plan" if plan.get("refused") else "traceback"}
    made["error_pct"] = percent(plan["steady"]["step"], true["steady"]["step"])
    made["first_error_pct"] = percent(plan["first"]["step"], true["first"]["step"])
    made["steps_differ"] = len({true["second"]["step"], *true.get("peaks", [true["steady"]["step"]])[1:]}) > 1
    made["too_low"] = min(made["error_pct"], made["first_error_pct"]) < -WITHIN_PCT
    made["said"] = any(SAID in each for each in plan["assumptions"])
    if abs(made["error_pct"]) <= within_pct(case):
        return {**made, "verdict": "within"}
    return {**made, "verdict": "said" if made["said"] else "silent miss"}


def plans(case: str) -> dict[str, Any]:
    """Whether the plans of a case are the same bytes: cold, warm, and on a machine that seems slow."""
    looks = looks_at(("predicted", "predicted"), case)
    found = {"cold": next(looks)}
    found["warm"] = found["cold"] if "error" in found["cold"] else next(looks)
    looks.close()
    found["slow"] = look_at("predicted", case, faster=SLOWER)
    texts = {name: each.get("error", {step: each.get(step) for step in STEPS}) for name, each in found.items()}
    differ = [name for name, each in texts.items() if each != texts["cold"]]
    return {"case": case, "verdict": f"differs: {', '.join(differ)}" if differ else "same", **found}


def within_pct(case: str) -> float:
    return families_finetune.within_pct(case) if case.startswith("finetune/") else WITHIN_PCT


def is_refused_recipe(case: str, found: dict[str, Any]) -> bool:
    """Whether surefoot refused to build the recipe, with a reason, as it should."""
    return case.removeprefix("step/") in families_steps.REFUSED and bool(found.get("refused"))


def line(row: dict[str, Any]) -> str:
    text = f"{row['case']:44} {row['verdict']:12}"
    if "cold" in row:
        return f"{text} " + " ".join(
            f"{name} {row[name]['steady']['step']:,} B"
            if "steady" in row[name]
            else f"{name} {row[name]['error'][:60]}"
            for name in ("cold", "warm", "slow")
        )
    found = row.get("predicted", row["truth"])
    if "error" in found:
        return f"{text} {found['error'][:150]} {' '.join(found.get('places', [])[-3:])}"
    text += f" {row['truth']['steady']['step']:>12,} B {row['error_pct']:+9.4f}%  first {row['first_error_pct']:+9.4f}%"
    return text + ("  (its steps differ)" if row["steps_differ"] else "")


def result(rows: list[dict[str, Any]]) -> str:
    """The last line."""
    if any("cold" in each for each in rows):
        return f"RESULT cases={len(rows)} same={sum(each['verdict'] == 'same' for each in rows)}"
    counted = [each for each in rows if each["verdict"] not in ("inconclusive", "refused")]
    planned = [each for each in counted if "error_pct" in each]
    count = {kind: sum(each["verdict"] == kind for each in rows) for kind in VERDICTS}
    shares = len(planned) / max(1, len(counted)), count["within"] / max(1, len(planned))
    low = [each for each in planned if each["too_low"]]
    return (
        f"RESULT cases={len(counted)} planned={shares[0]:.4f} within_0_1pct={shares[1]:.4f} "
        f"silent={count['silent miss']} silent_too_low={sum(not each['said'] for each in low)} "
        f"dies={count['no plan'] + count['traceback']} times_out={count['timed out']} off_said={count['said']} "
        f"off_silent={count['silent miss']} too_low={len(low)} tracebacks={count['traceback']}"
    )


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """How many cases of each kind have each verdict."""
    kinds: dict[str, dict[str, int]] = {}
    known = {"step", "finetune", "vision", "timm", *(name for names in families.SIDES.values() for name in names)}
    for each in rows:
        kind = each["case"].partition("/")[0]
        counts = kinds.setdefault(kind if kind in known else "transformers", {})
        counts[each["verdict"]] = counts.get(each["verdict"], 0) + 1
        if each.get("too_low") and not each["said"]:
            counts["silently too low"] = counts.get("silently too low", 0) + 1
    return [
        f"{kind:20} {sum(n for v, n in c.items() if v != 'silently too low'):3} "
        + ", ".join(f"{n} {v}" for v, n in c.items())
        for kind, c in kinds.items()
    ]


def explain(case: str) -> None:
    """Prints where the bytes that were allocated and the bytes that were booked part ways."""
    looks = {look: look_at(look, case) for look in ("truth", "real", "fake")}
    for found in looks.values():
        if "error" in found:
            raise SystemExit(f"{case}: {found}")
    compare_calls(case, looks)


def chosen(arguments: argparse.Namespace) -> list[str]:
    names = case_names(held_out=arguments.held_out, side=arguments.families)
    if arguments.only:
        known = {*names} if arguments.families else {*names, *case_names(held_out=True)}
        wanted = arguments.only.split(",")
        return [case for case in sorted(known) if any(each in (case, case.partition("/")[0]) for each in wanted)]
    if arguments.quick:
        return random.Random(f"{datetime.now(UTC):%Y-%m-%d}").sample(names, min(QUICK, len(names)))
    if arguments.slice:
        number, of = map(int, arguments.slice.split("/"))
        return names[number - 1 :: of]
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} cases, drawn anew every day")
    parser.add_argument("--held-out", action="store_true", help="the other tasks of each family of transformers")
    parser.add_argument("--families", choices=[*families.SIDES, "all"], help="recipes from the shapes of real projects")
    parser.add_argument("--twice", action="store_true", help="plan each case three times and compare the bytes")
    parser.add_argument("--only", help="cases, or families, with commas")
    parser.add_argument("--slice", help="every N-th case, from the I-th: I/N")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--append", action="store_true", help="keep the rows of other cases that are in --out")
    parser.add_argument("--missing", action="store_true", help="only cases that are not in --out; implies --append")
    parser.add_argument("--explain", metavar="CASE")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.explain:
        explain(arguments.explain)
        return 0
    cases = chosen(arguments)
    if arguments.list:
        print("\n".join(cases))
        return 0
    rows = {}
    if (arguments.append or arguments.missing) and arguments.out and arguments.out.exists():
        rows = {each["case"]: each for each in json.loads(arguments.out.read_text())["rows"]}
    cases = [case for case in cases if not (arguments.missing and case in rows)]
    began = time.monotonic()

    def measured(case: str) -> dict[str, Any] | None:
        late = arguments.quick and time.monotonic() - began > QUICK_SECONDS
        return None if late else (plans if arguments.twice else row)(case)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for case, found in zip(cases, pool.map(measured, cases), strict=True):
            if found is None:
                print(f"{case:44} not begun: the time of --quick was up")
                continue
            print(line(found), flush=True)
            rows[found["case"]] = found
            if arguments.out:
                kept = list(rows.values())
                write_record(arguments.out, {"summary": summary(kept), "result": result(kept), "rows": kept})
    print("\n".join(summary(list(rows.values()))))
    print(result(list(rows.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
