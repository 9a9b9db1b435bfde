"""plan_scripts: `surefoot plan` of unchanged scripts, held against the same scripts really run on this CPU.

    python bench/plan_scripts.py [--quick] [--seed N] [--only PATTERN] [--side tuning|held_out|all] [--here] [--jobs N]
        [--out FILE]

Each script of `scripts/` is copied to a folder of its own, and started there three times, in processes of their own:

| truth     | really, with `cuda` mapped to this CPU; the peak is what torch's allocator gave to it (`card_on_cpu.py`) |
| planned   | by `surefoot plan`, on a card that computes as this CPU does, up to the same update |
| on a card | by `surefoot plan --on rtx-4090`: with the kernels and policies of a GPU |

A plan is off if its peak is more than 0.1% from the truth. It is said to be off if the plan names a reason for it: a
range of its steps that holds the truth, or an assumption about values, shapes or memory. Else the miss is silent. A
file that a plan leaves in the folder, or in the home folder, is an outside write.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import write_record

BENCH = Path(__file__).parent
SIDES = ("tuning", "held_out")
CARD = "rtx-4090"
UPDATES = 3
MOST_SECONDS = 420
NEAR_PERCENT = 0.1
QUICK_CASES = 3
REASONS = ("not validated", "worst case")
"""What a plan says if its bytes may be off. A range of its steps is a reason if it holds the truth."""
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class Case:
    """One script: its side, its file and how it is started."""

    side: str
    file: str
    family: str
    launcher: str
    packages: str

    @property
    def name(self) -> str:
        return f"{self.side}/{self.file.removesuffix('.py')}"

    @property
    def words(self) -> list[str]:
        """The command line after `python`."""
        words = shlex.split(self.launcher)
        if self.file not in words:
            words.append(self.file)
        return words[1:] if words[0] in ("python", "python3") else words

    @property
    def script(self) -> list[str]:
        """The script and its own arguments."""
        return self.words[self.words.index(self.file) :]

    @property
    def ranks(self) -> int:
        found = re.search(r"(?:nproc[-_]per[-_]node|num_processes)[= ](\d+)", self.launcher)
        return int(found[1]) if found else 1

    @property
    def names_a_device(self) -> bool:
        """Whether the script, or a library that it gives its model to, puts it on a device."""
        source = (BENCH / "scripts" / self.side / self.file).read_text(encoding="utf-8")
        places = self.packages or re.search(
            r"cuda|accelerator|device", re.sub(r'""".*?"""|#.*', "", source, flags=re.S)
        )
        return bool(places)


def cases(side: str, pattern: str) -> list[Case]:
    """The scripts of a side, or of both."""
    found = []
    for each in SIDES if side == "all" else (side,):
        table = BENCH / "scripts" / each / "families.tsv"
        if table.exists():
            with table.open(encoding="utf-8", newline="") as rows:
                found += [Case(each, *row[:4]) for row in csv.reader(rows, delimiter="\t") if row and row[0] != "file"]
    return [each for each in found if fnmatch.fnmatch(each.name, f"*{pattern}*")]


# ------------------------------------------------------------------------------------------- running


@contextmanager
def sandbox(case: Case) -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy of the script in a folder that is not among temporary files, and an environment whose home is there."""
    place = Path(os.environ.get("SUREFOOT_BENCH_FOLDER", BENCH.parent / "runs"))
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="plan-scripts-", dir=place))
    try:
        (folder / "home").mkdir()
        (folder / "work").mkdir()
        for each in (BENCH / "scripts" / case.side).iterdir():
            if each.name == case.file or (each.suffix != ".tsv" and not is_case(case.side, each.name)):
                (shutil.copytree if each.is_dir() else shutil.copyfile)(each, folder / "work" / each.name)
        quiet = {
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TQDM_DISABLE": "1",
            "WANDB_MODE": "disabled",
        }
        homes = {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "home/.cache")}
        paths = {"PYTHONPATH": os.pathsep.join([str(BENCH.parent / "src"), str(BENCH)])}
        limits = {"OMP_NUM_THREADS": "1", "BENCH_PACKAGES": case.packages}
        yield folder / "work", {**os.environ, **quiet, **homes, **paths, **limits}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_case(side: str, file: str) -> bool:
    return any(each.file == file for each in cases(side, ""))


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with its size and time. Bytecode is Python's own."""
    files = [each for each in folder.rglob("*") if "__pycache__" not in each.parts]
    return {
        str(each.relative_to(folder)): (each.lstat().st_size * each.is_file(), each.lstat().st_mtime_ns)
        for each in files
    }


def run(words: list[str], folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Runs a command with a time limit."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            code: int | str = child.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            code = "timed out"
        output.seek(0)
        return {"code": code, "seconds": round(time.monotonic() - began, 1), "said": output.read()}


def truth(case: Case) -> dict[str, Any]:
    """The script really run, as many processes as it has ranks."""
    with sandbox(case) as (folder, environment), tempfile.TemporaryDirectory() as aside:
        result = Path(aside) / "truth.json"
        moved = "named" if case.names_a_device else "moved"
        words = [sys.executable, str(BENCH / "script_truth.py"), str(result), str(UPDATES), moved, *case.script]
        if case.ranks > 1:
            launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
            words = [sys.executable, *launch, *words[1:]]
        ran = run(words, folder, environment)
        if not result.exists():
            return {"error": f"exit code {ran['code']}", "said": ran["said"][-2000:]}
        found = json.loads(result.read_text())
        return found | {"seconds": ran["seconds"]} | ({"said": ran["said"][-2000:]} if "error" in found else {})


def planned(case: Case, on: str) -> dict[str, Any]:
    """The plan, as the command line makes it; and what it left behind."""
    with sandbox(case) as (folder, environment), tempfile.TemporaryDirectory() as aside:
        result = Path(aside) / "plan.json"
        before = listing(folder.parent)
        ran = run([sys.executable, __file__, "--plan", str(result), on, *case.words], folder, environment)
        after = listing(folder.parent)
        written = sorted(name for name in after if after[name] != before.get(name)) + sorted(set(before) - set(after))
        found: dict[str, Any] = {"written": written, "seconds": ran["seconds"]}
        if result.exists():
            return found | json.loads(result.read_text())
        return found | {"died": f"exit code {ran['code']}", "said": ran["said"][-2000:]}


def plan_here(result: Path, on: str, words: list[str]) -> None:
    """In a process of its own: the peak of a plan and what it says of it."""
    from surefoot.errors import SurefootError
    from surefoot.planning.scripts.plan_script import plan_script

    try:
        plan = plan_script(words, on=on, updates=UPDATES)
    except SurefootError as error:
        failed = "card that is not there" in str(error) or "ended its process" in str(error)
        result.write_text(json.dumps({"failed" if failed else "refused": str(error)}))
        return
    usages = (plan.init, plan.first, plan.steady, plan.evaluate)
    found = {
        "peak": max(each.peak.peak_bytes for each in usages),
        "parts": [each.peak.peak_bytes for each in usages],
        "at": [f"{each.peak.phase} {each.peak.module} {each.peak.operator}" for each in usages],
        "script": list(plan.script),
        "assumptions": list(plan.assumptions),
    }
    result.write_text(json.dumps(found))


# ------------------------------------------------------------------------------------------- judging


def measured(case: Case, *, here: bool) -> dict[str, Any]:
    """A case with everything that was found of it."""
    plan, true = planned(case, "cpu"), truth(case)
    found = {"case": case.name, "family": case.family, "truth": true, "plan": plan}
    if not here:
        found["card"] = planned(case, CARD)
    return found | judged(true, plan)


def judged(true: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """What became of a plan, and how far it is off."""
    if "peak" not in plan:
        return {"verdict": outcome(plan), "percent": None}
    if "error" in true or not true.get("peak"):
        return {"verdict": "no truth", "percent": None}
    percent = 100 * (plan["peak"] - true["peak"]) / true["peak"]
    if abs(percent) <= NEAR_PERCENT:
        return {"verdict": "near", "percent": percent}
    lines = (*plan["script"], *plan["assumptions"])
    said = [line for line in lines if covers(line, true["peak"]) or any(reason in line for reason in REASONS)]
    return {"verdict": "off, said" if said else "off, silent", "percent": percent, "reasons": said}


def covers(line: str, peak: int) -> bool:
    """Whether a line of a plan states a range of its steps that holds a peak, to the last digit that it prints."""
    found = re.search(r"its steps differ: ([\d.,]+) (\w+) to ([\d.,]+) (\w+)", line)
    if not found:
        return False
    low, high = (float(found[each].replace(",", "")) * UNITS[found[each + 1]] for each in (1, 3))
    return 0.999 * low <= peak <= 1.001 * high


def outcome(plan: dict[str, Any]) -> str:
    """What became of a plan."""
    return next(word for word in ("peak", "refused", "failed", "died") if word in plan).replace("peak", "planned")


def outside(row: dict[str, Any]) -> list[str]:
    """The files that the plans of a script wrote."""
    return [name for plan in ("plan", "card") for name in row.get(plan, {}).get("written", ())]


def line(row: dict[str, Any]) -> str:
    """A case as a line."""
    plan, percent = row["plan"], row["percent"]
    peak = row["truth"].get("peak")
    text = f"{row['case']:34} {row['verdict']:12} "
    text += f"{'-' if percent is None else f'{percent:+.4f}%':>11} "
    text += f"{'-' if peak is None else f'{peak / 1e6:.3f}':>10} "
    text += f"{plan['seconds']:6.0f} {row['truth'].get('seconds', 0):6.0f}  "
    text += f"{outcome(row['card']) if 'card' in row else '':8}"
    why = plan.get("refused") or plan.get("failed") or plan.get("died") or row["truth"].get("error") or ""
    why = why or "; ".join(row.get("reasons", ())[:1])
    written = outside(row)
    return (
        text
        + (f" wrote {', '.join(written[:3])}" if written else "")
        + (f" {why.splitlines()[0][:110]}" if why else "")
    )


HEAD = f"{'script':34} {'verdict':12} {'plan-truth':>11} {'truth MB':>10} {'plan s':>6} {'real s':>6}  {CARD}"


def result(rows: list[dict[str, Any]]) -> str:
    """The last line."""
    compared = [row for row in rows if row["percent"] is not None]
    near = sum(row["verdict"] == "near" for row in rows)
    said = sum(row["verdict"] == "off, said" for row in rows)
    silent = sum(row["verdict"] == "off, silent" for row in rows)
    counts = {
        "cases": len(rows),
        "planned": f"{sum('peak' in row['plan'] for row in rows) / max(1, len(rows)):.4f}",
        "compared": len(compared),
        "within_0_1pct": f"{near / max(1, len(compared)):.4f}",
        "off_and_said": said,
        "silent_misses": silent,
        "outside_writes": sum(len(outside(row)) for row in rows),
    }
    if cards := [row["card"] for row in rows if "card" in row]:
        counts["planned_on_a_card"] = f"{sum('peak' in each for each in cards) / len(cards):.4f}"
    return "RESULT " + " ".join(f"{name}={value}" for name, value in counts.items())


def main() -> None:
    """Measures and prints."""
    asked = _asked()
    chosen = cases(asked.side, asked.only)
    if asked.quick:
        light = [each for each in chosen if not each.packages and each.ranks == 1]
        chosen = random.Random(asked.seed).sample(light, min(QUICK_CASES, len(light)))
    random.Random(asked.seed).shuffle(chosen)  # if it is stopped, what was measured is a fair sample
    print(HEAD, flush=True)
    rows = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done in as_completed(pool.submit(measured, each, here=asked.here) for each in chosen):
            row = done.result()
            rows.append(row)
            print(line(row), flush=True)
            if asked.out is not None:
                write_record(asked.out, {"side": asked.side, "updates": UPDATES, "card": CARD, "cases": rows})
    print(result(rows))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few plain scripts, drawn anew")
    parser.add_argument("--seed", type=int, default=None, help="draws the same scripts again")
    parser.add_argument("--only", default="", help="part of a name, or a pattern")
    parser.add_argument("--side", choices=(*SIDES, "all"), default="all")
    parser.add_argument("--here", action="store_true", help="no plans for a GPU")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:
        plan_here(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    else:
        main()
