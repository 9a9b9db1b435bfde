"""plan_memory: the memory that `surefoot.plan` predicts, held against the bytes that torch really allocated.

    python bench/plan_memory.py [--quick | --full-size] [--models a,b] [--settings a,b] [--out FILE] [--markdown]
    python bench/plan_memory.py --explain MODEL/SETTING
    python bench/plan_memory.py --compiled [--models a,b] [--settings a,b]
    python bench/plan_memory.py --speed [--models a,b] [--out FILE]

Each case (`memory_cases.py`) is looked at three times, each in a process of its own with one thread:

| truth     | three real steps under the counting allocator (`surefoot.meters.allocator`)         |
| predicted | `surefoot.plan`, two steps on fake tensors                                          |
| peers     | what other tools say (`memory_peers.py`); those that only compute share one process |

What is compared: the peak of the first and of a steady step (the third; the second must equal it), and in
each of them the peak of every phase, from the end of one update to the end of the next. Bytes live before
the model was built do not count: the data set is among them, the micro-batches that a step takes are not.
A case's error is its worst: of both steps, and of every phase in them, each relative to its own truth.

`--compiled` holds the plan, which is that of the step before it is compiled, against a steady step with each block and
with the whole model compiled: how much too high it is.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: some kernels take a buffer for each thread
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import plan_speed
import torch
from memory_cases import FULL_SIZE, MODELS, QUICK, SETTINGS, case_names, case_recipe, model_of
from memory_models import FORMERLY_HELD_OUT
from memory_models_held_out import HELD_OUT
from memory_peers import NOT_RUN, PEERS, figures, memtracker, versions
from record import write_record

import surefoot
from surefoot.data.batches import batches_of
from surefoot.events.listener import Listener, Segment
from surefoot.events.phases import Phases
from surefoot.meters import allocator
from surefoot.meters.books import Books
from surefoot.recipe.recipe import Recipe
from surefoot.step import Step
from surefoot.torch_inside.modes import TorchDispatchMode
from surefoot.trees import tensors_in
from surefoot.world.world import FakeWorld, World

PHASES = ("forward", "loss", "backward", "update")
STEPS = ("first", "steady")
Peaks = dict[str, int]


# ------------------------------------------------------------------------------------------- the looks


class PhasePeaks(Listener):
    """The allocator's peak in each phase of each step, in bytes above a baseline."""

    def __init__(self, phases: Phases, baseline: int) -> None:
        self.baseline = baseline
        self.steps: list[Peaks] = []
        self._running = phases.segment
        self._seen: list[tuple[Segment, int]] = []
        allocator.reset_peak()

    def entered(self, segment: Segment) -> None:
        self._seen.append((self._running, allocator.peak_bytes() - self.baseline))
        self._running = segment
        allocator.reset_peak()

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self.entered(self._running)
        peaks: Peaks = defaultdict(int)
        for segment, peak in self._seen:
            for name in ("step", segment.name):
                peaks[name] = max(peaks[name], peak)
        self.steps.append(dict(peaks))
        self._seen.clear()


def truth(recipe: Recipe) -> dict[str, Any]:
    """Three real steps under the counting allocator."""
    allocator.install()
    world = World()
    batches = batches_of(recipe)
    baseline = allocator.live_bytes()
    step = Step(recipe, world)
    with Phases(step.model) as phases:
        peaks = PhasePeaks(phases, baseline)
        phases.listeners.append(peaks)
        for number in range(3):
            step(world.take(batches) for _ in range(recipe.micro_batches()))
            if len(peaks.steps) != number + 1:
                raise RuntimeError(f"step {number + 1} made no update: the scaler skipped it")
    first, second, third = peaks.steps
    return {"first": first, "second": second, "steady": third}


def compiled(recipe: Recipe, way: str) -> dict[str, Any]:
    """A steady step of a model that was compiled before anyone looked on."""
    allocator.install()
    world = World()
    batches = batches_of(recipe)
    baseline = allocator.live_bytes()
    step = Step(replace(recipe, compile=way), world)

    def take() -> None:
        step(world.take(batches) for _ in range(recipe.micro_batches()))

    take()
    with Phases(step.model) as phases:
        peaks = PhasePeaks(phases, baseline)
        phases.listeners.append(peaks)
        take()
        take()
    return {"second": peaks.steps[0], "steady": peaks.steps[1]}


def predicted(recipe: Recipe) -> dict[str, Any]:
    """The plan's peaks."""
    began = time.process_time()
    plan = surefoot.plan(recipe)
    found: dict[str, Any] = {"seconds": time.process_time() - began, "assumptions": list(plan.assumptions)}
    for name in STEPS:
        usage = getattr(plan, name)
        phases = {phase: peak.peak_bytes for phase, peak in usage.phase_peaks.items()}
        found[name] = {"step": usage.peak.peak_bytes, **phases}
        found[f"{name} peak is at"] = f"{usage.peak.phase} {usage.peak.module} {usage.peak.operator}"
    return found


LOOKS: dict[str, Callable[[Recipe], dict[str, Any]]] = {
    "truth": truth,
    "predicted": predicted,
    "memtracker": memtracker,
    "compiled blocks": functools.partial(compiled, way="blocks"),
    "compiled whole": functools.partial(compiled, way="whole"),
}


# ------------------------------------------------------------------------------------------- one process each


def look_at(look: str, case: str) -> dict[str, Any]:
    """One look at one case, in a process of its own."""
    return in_process(look_here, look, case)


def look_here(look: str, case: str) -> dict[str, Any]:
    return (LOOKS | EXPLAINING)[look](case_recipe(case))


def in_process(function: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """What a function returns in a process of its own; an error is something found."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=send_result, args=(sender, function, *args))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        child.join()
        return {"error": f"the process died with exit code {child.exitcode}"}
    finally:
        child.join()


def send_result(pipe: Any, function: Callable[..., dict[str, Any]], *args: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        found = function(*args)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    pipe.send(found)


def processes() -> Any:
    """Children that are forked from a server which has loaded torch and has computed nothing."""
    context = multiprocessing.get_context("forkserver")
    hf = ("llama", "bert", "t5", "gpt2", "distilbert")
    context.set_forkserver_preload(
        ["surefoot.ways.plan", *(f"transformers.models.{name}.modeling_{name}" for name in hf)]
    )
    return context


PROCESSES = processes()


# ------------------------------------------------------------------------------------------- rows


def percent(predicted: int | None, true: int) -> float | None:
    return None if predicted is None else 100 * (predicted - true) / true


def row(case: str, true: dict[str, Any], plan: dict[str, Any], peers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A case with what was found and the errors that follow from it."""
    model = model_of(case)
    made = {"case": case, "held_out": model in HELD_OUT, "formerly_held_out": model in FORMERLY_HELD_OUT}
    made |= {"truth": true, "predicted": plan, "peers": peers, "errors": {}, "peer_errors": {}}
    if "error" in true:
        return made
    made["steady"] = true["second"] == true["steady"]
    if "error" not in plan:
        for step in STEPS:
            wanted = {name: peak for name, peak in true[step].items() if name in ("step", *PHASES)}
            made["errors"][step] = {name: percent(plan[step].get(name), peak) for name, peak in wanted.items()}
    made["peer_errors"] = {name: percent(peers[name].get("step"), true["steady"]["step"]) for name in PEERS}
    return made


def worst(row: dict[str, Any]) -> float | None:
    """The largest error of a case; None if there is no prediction, or none for a phase that there was."""
    errors = [error for step in row["errors"].values() for error in step.values()]
    return None if not errors or None in errors else max(map(abs, errors))


def measure(cases: list[str], jobs: int, *, peers: bool) -> Iterator[dict[str, Any]]:
    """The rows of all cases, in order, as they are found."""
    computed = in_process(figures, cases) if peers else {}

    def one(case: str) -> dict[str, Any]:
        others = dict(NOT_RUN)
        if peers:
            failed = {name: {"error": computed.get("error")} for name in PEERS}
            others = {**failed, **computed.get(case, {}), "MemTracker": look_at("memtracker", case)}
        return row(case, look_at("truth", case), look_at("predicted", case), others)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, cases)


# ------------------------------------------------------------------------------------------- what is printed

COLUMNS = f"{'case':32} {'truth MB':>9} {'plan MB':>9} {'step %':>9} " + " ".join(f"{p:>9}" for p in PHASES)
COLUMNS += f" {'1st step':>9} " + " ".join(f"{name:>12}" for name in PEERS)


def number(error: float | None, width: int = 9) -> str:
    """An error in percent; `=` where it is exact to the byte."""
    return f"{'-' if error is None else '=' if error == 0 else f'{error:+.4f}':>{width}}"


def line(row: dict[str, Any]) -> str:
    """A case as a line of the table; what crashed says why."""
    name = row["case"] + (" *" if row["held_out"] else "")
    if "error" in row["truth"]:
        return f"{name:32} the real step failed: {row['truth']['error']}"
    text = f"{name:32} {row['truth']['steady']['step'] / 1e6:9.2f} "
    if "error" in row["predicted"]:
        text += f"the plan crashed: {row['predicted']['error'][:90]}"
    else:
        steady, first = row["errors"]["steady"], row["errors"]["first"].values()
        text += f"{row['predicted']['steady']['step'] / 1e6:9.2f} {number(steady['step'])} "
        text += " ".join(number(steady.get(phase)) for phase in PHASES)
        text += " " + number(None if None in first else max(first, key=abs))
    text += " " + " ".join(number(row["peer_errors"][name], 12) for name in PEERS)
    return text + ("" if row["steady"] else "  (its steps differ)")


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line for each model, over all its settings."""
    names = ["model", "cases", "step exact", "worst step %", "worst phase %", "crashes", *(f"{p} %" for p in PEERS)]
    lines = ["| " + " | ".join(names) + " |", "|---" + "|---:" * (len(names) - 1) + "|"]
    for model in MODELS | FULL_SIZE:
        mine = [each for each in rows if model_of(each["case"]) == model and "error" not in each["truth"]]
        if mine:
            lines.append(markdown_line(model, mine))
    return "\n".join([*lines, "", "Of a peer: its worst case, and of how many it had a figure."])


def markdown_line(model: str, rows: list[dict[str, Any]]) -> str:
    planned = [each for each in rows if each["errors"]]
    steps = [abs(step["step"]) for each in planned for step in each["errors"].values()]
    phases = [error for error in map(worst, planned) if error is not None]
    cells = [
        model + (" (held out)" if model in HELD_OUT else ""),
        len(rows),
        sum(each["errors"]["steady"]["step"] == 0 for each in planned),
        f"{max(steps, default=float('nan')):.4f}",
        f"{max(phases, default=float('nan')):.4f}",
        len(rows) - len(phases),
    ]
    for errors in (peer_errors(rows, name) for name in PEERS):
        cells.append(f"{max(errors):.1f} ({len(errors)})" if errors else "-")
    return "| " + " | ".join(map(str, cells)) + " |"


def peer_errors(rows: list[dict[str, Any]], name: str) -> list[float]:
    """The sizes of a peer's errors, where it had a figure."""
    errors = [each["peer_errors"].get(name) for each in rows]
    return [abs(error) for error in errors if error is not None]


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """The held-out cases apart, and each peer."""
    held_out = [each for each in rows if each["held_out"]]
    found = [error for error in map(worst, held_out) if error is not None]
    lines = [f"held out      {spread(found, held_out)}"] if held_out else []
    for name in PEERS:
        if errors := peer_errors(rows, name):
            lines.append(f"{name:13} {spread(errors, rows)}, of the steady step's peak alone")
    return lines


def spread(errors: list[float], rows: list[dict[str, Any]]) -> str:
    middle = statistics.median(errors) if errors else float("nan")
    had = f"{len(errors)} of {len(rows)} cases have a figure"
    return f"{had}, worst {max(errors, default=middle):.4f}%, median {middle:.4f}%"


def result(rows: list[dict[str, Any]]) -> str:
    """The last line. A case whose plan crashed, or left out a phase, has no error: it counts as a crash."""
    errors = [worst(each) for each in rows]
    known = [error for error in errors if error is not None]
    middle = statistics.median(known) if known else float("nan")
    return (
        f"RESULT cases={len(rows)} worst_pct={max(known, default=float('nan')):.4f} "
        f"median_pct={middle:.4f} crashes={len(errors) - len(known)}"
    )


# ------------------------------------------------------------------------------------------- compiled


def compare_compiled(cases: list[str]) -> None:
    """Prints the plan beside the allocator's peaks of the step as written, with compiled blocks and compiled whole."""
    print("| case | planned MB | as written MB | blocks compiled MB | plan is | whole compiled MB | plan is |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for case in cases:
        looks = ("predicted", "truth", "compiled blocks", "compiled whole")
        found = {look: look_at(look, case) for look in looks}
        for look, each in found.items():
            if "error" in each:
                print(f"{case}, {look}: {each['error']}", file=sys.stderr)
                return
        plan, written, *peaks = (each["steady"]["step"] for each in found.values())
        cells = [case, f"{plan / 1e6:.2f}", f"{written / 1e6:.2f}"]
        cells += [text for peak in peaks for text in (f"{peak / 1e6:.2f}", f"{percent(plan, peak):+.1f}%")]
        print("| " + " | ".join(cells) + " |", flush=True)


# ------------------------------------------------------------------------------------------- the record


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    write_record(path, {"peers": versions(), "rows": rows, "summary": summary(rows), "result": result(rows)})


# ------------------------------------------------------------------------------------------- explain


class Probe(TorchDispatchMode):
    """Writes down, for every operator of a step, the bytes before it, at its peak and after it."""

    def __init__(self, phases: Phases, live: Callable[[], int], peak: Callable[[], int]) -> None:
        super().__init__()
        self.phases, self.live, self.peak = phases, live, peak
        self._calls: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.live()
        out = func(*args, **(kwargs or {}))
        peak = self.peak()
        call = {"operator": str(func), "segment": self.phases.now(), "module": self.phases.module()}
        call |= {"shapes": shapes([args, kwargs or {}]), "out": shapes(out)}
        self._calls.append({**call, "before": before, "peak": peak, "after": self.live()})
        return out

    def calls(self) -> list[dict[str, Any]]:
        """With the names that the phases have when the step is over."""
        return [{**call, "phase": call.pop("segment").name} for call in self._calls]


def shapes(tree: Any) -> str:
    """The tensors' formats and shapes, of many the first three."""
    found = [f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in tensors_in(tree)]
    return " ".join(found if len(found) <= 5 else [*found[:3], f"and {len(found) - 3} more"])


def real_calls(recipe: Recipe) -> dict[str, Any]:
    """The operators of a second, real step, by the counting allocator."""
    allocator.install()
    world = World()
    batches = batches_of(recipe)
    baseline = allocator.live_bytes()
    step = Step(recipe, world)

    def live() -> int:
        allocator.reset_peak()
        return allocator.live_bytes() - baseline

    step(world.take(batches) for _ in range(recipe.micro_batches()))
    with (
        Phases(step.model) as phases,
        Probe(phases, live, lambda: allocator.peak_bytes() - baseline) as probe,
    ):
        step(world.take(batches) for _ in range(recipe.micro_batches()))
    return {"calls": probe.calls()}


def fake_calls(recipe: Recipe) -> dict[str, Any]:
    """The operators of a second, fake step, by what the memory meter has booked."""
    world = FakeWorld()
    batches = batches_of(recipe)
    with world:
        step = Step(recipe, world)
        with Books(step.model) as books:

            def booked() -> int:
                return sum(booking.size for booking in books.memory._bookings.values())

            step(books.seen(world.take(batches) for _ in range(recipe.micro_batches())))
            with Probe(books.phases, booked, booked) as probe:
                step(books.seen(world.take(batches) for _ in range(recipe.micro_batches())))
    return {"calls": probe.calls()}


EXPLAINING = {"real": real_calls, "fake": fake_calls}


def explain(case: str) -> None:
    """Prints where the bytes that were allocated and the bytes that were booked part ways."""
    looks = {look: look_at(look, case) for look in ("truth", "real", "fake")}
    for found in looks.values():
        if "error" in found:
            raise SystemExit(f"{case}: {found['error']}")
    if model_of(case) in HELD_OUT:
        print(f"{model_of(case)} was held out; who reads on must write so in memory_models_held_out.py")
    compare_calls(case, looks)


def compare_calls(case: str, looks: dict[str, dict[str, Any]]) -> None:
    """Prints the differences between the operators of a real and of a fake step."""
    real, fake = (plain_calls(looks[look]["calls"]) for look in ("real", "fake"))
    print(f"{case}, a steady step")
    explain_phases(looks["truth"]["steady"], real, fake)
    print("\noperator by operator, where the gap between allocated and booked bytes changes:")
    matcher = SequenceMatcher(None, list(map(signature, real)), list(map(signature, fake)), False)
    changes: list[tuple[int, str]] = []
    for kind, a1, a2, b1, b2 in matcher.get_opcodes():
        compare = explain_pairs if kind == "equal" else explain_paths
        changes += compare(real[a1:a2], fake[b1:b2])
    print_grouped(changes)
    explain_workspaces(real)


def plain_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those that FakeTensorMode adds for itself, and those that only look."""
    return [each for each in calls if not each["operator"].startswith(("prim.", "aten.detach", "aten.alias"))]


def explain_phases(true: Peaks, real: list[dict[str, Any]], fake: list[dict[str, Any]]) -> None:
    for phase in (each for each in PHASES if each in true):  # a step of one's own is measured as a whole
        print(f"\n{phase}: {true[phase]:,} B in the plain step; seen from the operators:")
        for name, calls in (("allocated", real), ("booked", fake)):
            top = max((call for call in calls if call["phase"] == phase), key=highest, default=None)
            if top is not None:
                print(f"  {name:9} {highest(top):13,} B at {describe(top)}")


def highest(call: dict[str, Any]) -> int:
    return max(call["before"], call["peak"], call["after"])


def signature(call: dict[str, Any]) -> tuple[str, str, str]:
    return call["phase"], call["operator"], call["out"]


def explain_pairs(reals: list[dict[str, Any]], fakes: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Changes of the gap while both take the same path."""
    gap, last = None, None
    for real, fake in zip(reals, fakes, strict=True):
        for moment in ("between", "in"):
            now = real["before"] - fake["before"] if moment == "between" else real["after"] - fake["after"]
            if gap is not None and now != gap:
                after = f" (after {last['operator']})" if moment == "between" else ""
                yield now - gap, f"{'before' if after else 'in':6} {describe(real, module=False)}{after}"
            gap = now
        last = real


def explain_paths(reals: list[dict[str, Any]], fakes: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Operators that only one of them ran."""
    for sign, name, calls in ((1, "only allocated", reals), (-1, "only booked", fakes)):
        for call in calls:
            yield sign * (call["after"] - call["before"]), f"{name}: {describe(call, module=False)}"


def print_grouped(changes: list[tuple[int, str]]) -> None:
    """Equal changes once, with their number, those of the most bytes first."""
    for (change, text), times in sorted(Counter(changes).items(), key=lambda item: -abs(item[0][0]) * item[1]):
        print(f"  {change:+12,} B x{times:<4} {text}")


def explain_workspaces(calls: list[dict[str, Any]]) -> None:
    """What operators took and gave back inside, the most of each operator."""
    most: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
    for call in calls:
        hidden = call["peak"] - max(call["before"], call["after"])
        key = call["phase"], call["operator"]
        if hidden > 0 and hidden > most.get(key, (0, {}))[0]:
            most[key] = hidden, call
    top = {phase: max(call["peak"] for call in calls if call["phase"] == phase) for phase, _ in most}
    print("\ntaken and given back inside an operator, the most of each; ! if its phase's peak is inside it:")
    for hidden, call in sorted(most.values(), key=lambda each: -each[0]):
        mark = "!" if call["peak"] == top[call["phase"]] else " "
        print(f"  {hidden:+12,} B {mark} {describe(call)}")


def describe(call: dict[str, Any], *, module: bool = True) -> str:
    place = f"{call['phase']} {call['module']}" if module else call["phase"]
    return f"{place} {call['operator']} {call['shapes']} -> {call['out']}"


# ------------------------------------------------------------------------------------------- the command


def chosen(arguments: argparse.Namespace) -> list[str]:
    """The cases asked for; unknown names list the known ones."""
    if arguments.full_size:
        settings = wanted(arguments.settings or "fp32", SETTINGS)
        return [f"{model}/{setting}" for model in FULL_SIZE for setting in settings]
    models, settings = wanted(arguments.models, MODELS), wanted(arguments.settings, SETTINGS)
    cases = QUICK if arguments.quick else case_names()
    return [case for case in cases if model_of(case) in models and case.split("/")[1] in settings]


def wanted(names: str | None, known: Any) -> list[str]:
    given = names.split(",") if names else list(known)
    if unknown := set(given) - set(known):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return given


def install_transformers(cases: list[str]) -> None:
    if any(case.startswith("hf_") for case in cases) and importlib.util.find_spec("transformers") is None:
        print("installing transformers, which some models come from", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "transformers"], check=True)


def speed(arguments: argparse.Namespace) -> None:
    """Times whole commands (`plan_speed.py`)."""
    rows = []
    for row in plan_speed.measured(wanted(arguments.models, plan_speed.MODELS)):
        print(json.dumps(row), flush=True)
        rows.append(row)
    print("\n" + plan_speed.table(rows) + "\n")
    if arguments.out:
        write_record(arguments.out, {"rows": rows, "result": plan_speed.result(rows)})
    print(plan_speed.result(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a sample of models and settings, without peers")
    size.add_argument("--full-size", action="store_true", help="only GPT-2 124M, in fp32: 3 GB, a minute")
    size.add_argument("--speed", action="store_true", help="how long plans take, with alike blocks reused and in full")
    parser.add_argument("--models", help="only these, separated by commas")
    parser.add_argument("--settings", help="only these, separated by commas")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--markdown", action="store_true", help="also print a table with one line for each model")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--compiled", action="store_true", help="hold the plan against compiled steps instead")
    parser.add_argument("--explain", metavar="CASE", help="where allocated and booked bytes of a case part ways")
    arguments = parser.parse_args()
    if arguments.speed:
        speed(arguments)
        return
    if not allocator.available():
        raise SystemExit("the truth is counted by a C++ allocator; install g++ or set CXX")
    allocator.install()  # builds it once, before the children need it
    cases = [arguments.explain] if arguments.explain else chosen(arguments)
    install_transformers(cases)
    if arguments.explain:
        explain(arguments.explain)
        return
    if arguments.compiled:
        compare_compiled(cases)
        return
    print(COLUMNS)
    rows = []
    for found in measure(cases, arguments.jobs, peers=not arguments.quick):
        print(line(found), flush=True)
        rows.append(found)
    print("errors in percent of the truth, = exact to the byte, - no figure, * held out: never diagnosed")
    for text in summary(rows):
        print(text)
    if arguments.markdown:
        print("\n" + markdown(rows) + "\n")
    if arguments.out:
        write(arguments.out, rows)
    print(result(rows))


if __name__ == "__main__":
    main()
