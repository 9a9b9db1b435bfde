"""watch: what `surefoot watch` costs scripts that it has never heard of, and whether it changes a bit of them.

Every script in `watched/` runs bare and watched, in turns, in processes of its own. Compared are the losses, bit for
bit, and the median CPU seconds of the steps after the checked ones; what the booked and checked ones cost is printed
too. `in_turns` is the same for one loop whose steps are bare and watched in turns, which a busy machine disturbs less.

    python bench/watch.py            six scripts, five rounds, 60 steps
    python bench/watch.py --quick    two of them, one round
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from record import write_record
from trainers import peers
from watched.in_turns import in_turns

SCRIPTS = ("plain", "nano", "by_lightning", "by_hf_trainer", "by_accelerate", "two_ranks")
OF_PEERS = ("by_lightning", "by_hf_trainer", "by_accelerate")
QUICK = ("plain", "nano")
BENCH = Path(__file__).parent
SETTLED = 12
"""Steps at the start that are not compared: three are booked, ten are checked."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--quick", action="store_true")
    asked.add_argument("--scripts", nargs="+", default=None, choices=SCRIPTS)
    asked.add_argument("--rounds", type=int, default=None)
    asked.add_argument("--steps", type=int, default=None)
    asked.add_argument("--out", type=Path, default=None)
    asked = asked.parse_args()
    scripts = asked.scripts or (QUICK if asked.quick else SCRIPTS)
    rounds, steps = asked.rounds or (1 if asked.quick else 5), asked.steps or (40 if asked.quick else 60)
    found = {}
    for script in scripts:
        each = found[script] = measured(script, rounds, steps)
        same = "losses identical" if each["identical"] else "LOSSES DIFFER"
        prices = f"{each['ratio']:.3f} of bare, {each['booked']:.2f} while booked, {each['checked']:.2f} while checked"
        print(f"{script:14s} {prices}; {same}", flush=True)
    turns = in_turns(30 if asked.quick else 120)
    print(f"steps in turns in one process: {turns.ratio:.3f}, 95% sure of {turns.low:.3f} to {turns.high:.3f}")
    if asked.out is not None:
        in_one = {"ratio": turns.ratio, "low": turns.low, "high": turns.high}
        write_record(asked.out, {"rounds": rounds, "steps": steps, "scripts": found, "in_turns": in_one})
    identical = sum(each["identical"] for each in found.values())
    middle = median(each["ratio"] for each in found.values())
    counts = f"scripts={len(found)} identical_losses={identical}"
    print(f"RESULT watched_over_bare={middle:.3f} {counts} in_turns={turns.ratio:.3f}")


def measured(script: str, rounds: int, steps: int) -> dict[str, Any]:
    """One script in turns, bare and watched."""
    ratios, booked, checked, identical = [], [], [], True
    for number in range(rounds):
        order = ("bare", "watched") if number % 2 else ("watched", "bare")
        runs = {kind: _run(script, steps, watched=kind == "watched") for kind in order}
        identical &= runs["bare"]["losses"] == runs["watched"]["losses"]
        ratios.append(_steady(runs["watched"]) / _steady(runs["bare"]))
        booked.append(median(_seconds(runs["watched"])[:3]) / _steady(runs["bare"]))
        checked.append(median(_seconds(runs["watched"])[3:10]) / _steady(runs["bare"]))
    prices = {"ratio": median(ratios), "booked": median(booked), "checked": median(checked)}
    return {**prices, "ratios": ratios, "identical": identical}


def _seconds(run: dict[str, Any]) -> list[float]:
    cpu = [moment[0] for moment in run["moments"]]
    return [later - earlier for earlier, later in pairwise(cpu)]


def _steady(run: dict[str, Any]) -> float:
    return median(_seconds(run)[SETTLED:])


def _run(script: str, steps: int, *, watched: bool) -> dict[str, Any]:
    """What a script wrote down of its steps; of two ranks, the first's."""
    python = peers.python() if script in OF_PEERS else sys.executable
    file = str(BENCH / "watched" / f"{script}.py")
    with tempfile.TemporaryDirectory() as folder:
        notes = str(Path(folder) / "notes")
        words = (
            ["-m", "surefoot", "watch", file, "--json", "--", notes, str(steps)]
            if watched
            else [file, notes, str(steps)]
        )
        if script == "two_ranks":
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            words = [*launcher, *words]
        done = subprocess.run([python, *words], cwd=BENCH, env=peers.environment(), capture_output=True, text=True)
        if not Path(f"{notes}.0").exists():
            raise SystemExit(f"{script} failed:\n{done.stderr[-3000:]}")
        return json.loads(Path(f"{notes}.0").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
