"""plan_families: how many kinds of models and training steps `surefoot.plan` can plan, and how exactly.

    python bench/plan_families.py [--quick] [--held-out] [--only a,b | --slice I/N] [--out FILE] [--append]
    python bench/plan_families.py --explain CASE
    python bench/plan_families.py --list

Cases: every family of transformers that has a loss and builds small from its config class (`families_transformers.py`),
families of vision models (`families_vision.py`), shapes of training steps (`families_steps.py`), and methods of
fine-tuning (`families_finetune.py`). `--held-out` takes the other tasks of each family of transformers instead.
`--quick` draws 12 at random, anew every day.

Each case has a process of its own, with one thread and a time limit. It takes three real steps under the counting
allocator, and then makes the plan from a recipe that is built anew. What is compared is the peak of a steady step.

| planned    | of the cases whose real step runs, the share that has a plan                                            |
| within     | of the planned ones, the share whose plan is within 0.1% of the allocator's peak; of fine-tuning, within|
|            | 0.02%, with 4-bit layers within 0.5%                                                                    |
| silent     | plans that are further off, without an assumption that says that something is not validated             |
| traceback  | plans that end in anything but an error of surefoot, which names the reason in one line                 |

A case whose real step fails, or takes too long, shows nothing about the plan. It is listed and not counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: some kernels take a buffer for each thread
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

import families_finetune
import families_steps
import families_transformers
import families_vision
import torch
from plan_memory import LOOKS, compare_calls, fake_calls, percent, real_calls
from record import write_record

from surefoot import Recipe
from surefoot.errors import SurefootError

LIMIT_SECONDS = 100
QUICK = 12
WITHIN_PCT = 0.1
SAID = "not validated"
"""What an assumption says of memory that is only estimated."""


# ------------------------------------------------------------------------------------------- cases


def case_names(*, held_out: bool = False) -> list[str]:
    if held_out:
        return families_transformers.case_names(held_out=True)
    steps = [f"step/{name}" for name in families_steps.STEPS]
    tuned = families_finetune.case_names()
    return [*steps, *tuned, *families_vision.vision_names(), *families_transformers.case_names()]


def case_recipe(case: str) -> Recipe:
    kind, _, name = case.partition("/")
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
    context.set_forkserver_preload(["plan_memory", "families_steps", "families_vision", "families_preload"])
    return context


PROCESSES = processes()


def look_at(look: str, case: str) -> dict[str, Any]:
    """What a look at a case found, in a process of its own. An error is something found."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=send, args=(sender, look, case))
    began = time.monotonic()
    child.start()
    sender.close()
    try:
        found = receiver.recv() if receiver.poll(LIMIT_SECONDS) else {"error": f"took over {LIMIT_SECONDS} s"}
    except EOFError:
        child.join()
        found = {"error": f"the process died with exit code {child.exitcode}"}
    child.kill()
    child.join()
    return {"seconds": round(time.monotonic() - began, 1), **found}


def send(pipe: Any, look: str, case: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries write there while they build models
    found = both(case) if look == "both" else look_here(look, case)
    pipe.send({**found, "seconds": round(time.process_time(), 1)})


def look_here(look: str, case: str) -> dict[str, Any]:
    looks = {**LOOKS, "real": real_calls, "fake": fake_calls}
    try:
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


def both(case: str) -> dict[str, Any]:
    """The plan and the real steps of a case."""
    true = look_here("truth", case)
    return {"truth": true} if "error" in true else {"truth": true, "predicted": look_here("predicted", case)}


def row(case: str) -> dict[str, Any]:
    """A case, what was found, and the verdict."""
    found = look_at("both", case)
    true = found.get("truth", found)
    made: dict[str, Any] = {"case": case, "seconds": found["seconds"], "truth": true}
    if "error" in true:
        return {**made, "verdict": "refused" if is_refused_recipe(case, true) else "inconclusive"}
    plan = made["predicted"] = found["predicted"]
    if "error" in plan:
        return {**made, "verdict": "no plan" if plan.get("refused") else "traceback"}
    made["error_pct"] = percent(plan["steady"]["step"], true["steady"]["step"])
    made["first_error_pct"] = percent(plan["first"]["step"], true["first"]["step"])
    made["steps_differ"] = true["second"]["step"] != true["steady"]["step"]
    if abs(made["error_pct"]) <= within_pct(case):
        return {**made, "verdict": "within"}
    said = any(SAID in each for each in plan["assumptions"])
    return {**made, "verdict": "said" if said else "silent miss"}


def within_pct(case: str) -> float:
    return families_finetune.within_pct(case) if case.startswith("finetune/") else WITHIN_PCT


def is_refused_recipe(case: str, found: dict[str, Any]) -> bool:
    """Whether surefoot refused to build the recipe, with a reason, as it should."""
    return case.removeprefix("step/") in families_steps.REFUSED and bool(found.get("refused"))


def line(row: dict[str, Any]) -> str:
    text = f"{row['case']:44} {row['verdict']:12}"
    found = row.get("predicted", row["truth"])
    if "error" in found:
        return f"{text} {found['error'][:150]} {' '.join(found.get('places', [])[-3:])}"
    text += f" {row['truth']['steady']['step']:>12,} B {row['error_pct']:+9.4f}%  first {row['first_error_pct']:+9.4f}%"
    return text + ("  (its steps differ)" if row["steps_differ"] else "")


def result(rows: list[dict[str, Any]]) -> str:
    """The last line."""
    counted = [each for each in rows if each["verdict"] not in ("inconclusive", "refused")]
    planned = [each for each in counted if "error_pct" in each]
    within = sum(each["verdict"] == "within" for each in planned)
    silent, tracebacks = (sum(each["verdict"] == kind for each in rows) for kind in ("silent miss", "traceback"))
    shares = len(planned) / max(1, len(counted)), within / max(1, len(planned))
    return (
        f"RESULT cases={len(counted)} planned={shares[0]:.4f} within_0_1pct={shares[1]:.4f} "
        f"silent_misses={silent} tracebacks={tracebacks}"
    )


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """How many cases of each kind have each verdict."""
    kinds: dict[str, dict[str, int]] = {}
    for each in rows:
        kind = each["case"].partition("/")[0]
        counts = kinds.setdefault(kind if kind in ("step", "finetune", "vision", "timm") else "transformers", {})
        counts[each["verdict"]] = counts.get(each["verdict"], 0) + 1
    return [f"{kind:13} {sum(c.values())} " + ", ".join(f"{n} {v}" for v, n in c.items()) for kind, c in kinds.items()]


def explain(case: str) -> None:
    """Prints where the bytes that were allocated and the bytes that were booked part ways."""
    looks = {look: look_at(look, case) for look in ("truth", "real", "fake")}
    for found in looks.values():
        if "error" in found:
            raise SystemExit(f"{case}: {found}")
    compare_calls(case, looks)


def chosen(arguments: argparse.Namespace) -> list[str]:
    names = case_names(held_out=arguments.held_out)
    if arguments.only:
        known = {*names, *case_names(held_out=True)}
        wanted = arguments.only.split(",")
        return [case for case in sorted(known) if any(each in (case, case.partition("/")[0]) for each in wanted)]
    if arguments.quick:
        return random.Random(f"{datetime.now(UTC):%Y-%m-%d}").sample(names, QUICK)
    if arguments.slice:
        number, of = map(int, arguments.slice.split("/"))
        return names[number - 1 :: of]
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} cases, drawn anew every day")
    parser.add_argument("--held-out", action="store_true", help="the other tasks of each family of transformers")
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
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(row, cases):
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
