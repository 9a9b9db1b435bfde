"""watch: what `surefoot watch` costs scripts that it has never heard of, and whether it changes a bit of them.

Every script in `watched/` runs bare and watched, in turns, in processes of its own. Compared are the losses, bit for
bit, what was booked with what `surefoot profile` books of the same model, and the median CPU seconds of the steps after
the checked ones; what booked and checked ones cost is printed too. `in_turns` is the same for one loop whose steps are
bare and watched in turns, which a busy machine disturbs less.

    python bench/watch.py [--quick] [--scripts a b] [--rounds N] [--steps N] [--against CHECKOUT] [--out FILE]
        [--markdown]

Without options six scripts, five rounds; with `--quick` the plain loop, one round. With `--against`, the surefoot of
another checkout watches too, in the same rounds, and the last line has the seconds of this one over those of that one.
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
from watched.tallies import differences

from surefoot.records.profile import Comparison
from surefoot.records.watched import read_watched
from surefoot.watch import BOOKED_STEPS, CHECKED_STEPS

SCRIPTS = {
    "plain": "a plain loop",
    "nano": "in nanoGPT's manner",
    "by_lightning": "Lightning",
    "by_hf_trainer": "Hugging Face Trainer",
    "by_accelerate": "Accelerate",
    "two_ranks": "torchrun, 2 ranks, DDP",
}
OF_PEERS = ("by_lightning", "by_hf_trainer", "by_accelerate")
QUICK = ("plain",)
BENCH = Path(__file__).parent
SETTLED = CHECKED_STEPS + 2
"""Steps at the start that are not compared: they are booked or checked."""
PRICES = ("ratio", "booked", "checked")


def main() -> None:
    asked = _asked()
    scripts = asked.scripts or (QUICK if asked.quick else tuple(SCRIPTS))
    rounds, steps = asked.rounds or (1 if asked.quick else 5), SETTLED + (asked.steps or (20 if asked.quick else 60))
    found = {}
    for script in scripts:
        each = found[script] = measured(script, rounds, steps, asked.against and asked.against.resolve())
        print(f"{script:14s} {_told(each)}", flush=True)
    turns = in_turns(30 if asked.quick else 120)
    print(f"steps in turns in one process: {_interval(turns)}")
    if asked.out is not None:
        in_one = {"ratio": turns.ratio, "low": turns.low, "high": turns.high}
        write_record(asked.out, {"rounds": rounds, "steps": steps, "scripts": found, "in_turns": in_one})
    if asked.markdown:
        print("\n" + markdown(found, turns) + "\n")
    middle = median(each["ratio"] for each in found.values())
    identical = sum(each["identical"] for each in found.values())
    equal = sum(not each["differences"] for each in found.values())
    counts = f"scripts={len(found)} identical_losses={identical} equal_tallies={equal}"
    over = median(each["over_before"]["ratio"] for each in found.values()) if asked.against else None
    last = "" if over is None else f" over_before={over:.3f}"
    print(f"RESULT watched_over_bare={middle:.3f} {counts} in_turns={turns.ratio:.3f}{last}")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scripts", nargs="+", default=None, choices=tuple(SCRIPTS))
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--steps", type=int, default=None, help="compared ones, after those that are checked")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout of surefoot, in turns")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--markdown", action="store_true", help="also print a table for the docs")
    return parser.parse_args()


def measured(script: str, rounds: int, steps: int, against: Path | None = None) -> dict[str, Any]:
    """One script in turns, bare, watched, and watched by another checkout."""
    kinds = ["bare", "watched", *(["before"] if against else [])]
    prices: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    identical = True
    for number in range(rounds):
        order = kinds[number % len(kinds) :] + kinds[: number % len(kinds)]
        runs = {kind: _run(script, steps, kind, against if kind == "before" else None) for kind in order}
        identical &= all(runs[kind]["losses"] == runs["bare"]["losses"] for kind in kinds)
        for kind in kinds:
            prices[kind].append(_prices(_seconds(runs[kind]), _steady(runs["bare"])))
    ratios = [each["ratio"] for each in prices["watched"]]
    found = {name: median(each[name] for each in prices["watched"]) for name in PRICES}
    more = {"ratios": ratios, "identical": identical, "differences": runs["watched"]["differences"]}
    if against:
        pairs = list(zip(prices["watched"], prices["before"], strict=True))
        more["over_before"] = {name: median(now[name] / before[name] for now, before in pairs) for name in PRICES}
    return {**found, **more}


def _prices(seconds: list[float], bare: float) -> dict[str, float]:
    """Of steady, booked and checked steps, over a bare step."""
    steady, booked = median(seconds[SETTLED:]), median(seconds[:BOOKED_STEPS])
    checked = median(seconds[BOOKED_STEPS : CHECKED_STEPS - 1])
    return dict(zip(PRICES, (steady / bare, booked / bare, checked / bare), strict=True))


def _seconds(run: dict[str, Any]) -> list[float]:
    cpu = [moment[0] for moment in run["moments"]]
    return [later - earlier for earlier, later in pairwise(cpu)]


def _steady(run: dict[str, Any]) -> float:
    return median(_seconds(run)[SETTLED:])


def _run(script: str, steps: int, kind: str, checkout: Path | None) -> dict[str, Any]:
    """What a script wrote down of its steps; of two ranks, the first's. Of a watched one, what was booked otherwise."""
    python = peers.python() if script in OF_PEERS else sys.executable
    file = str(BENCH / "watched" / f"{script}.py")
    with tempfile.TemporaryDirectory() as folder:
        notes, seen = str(Path(folder) / "notes"), Path(folder) / "seen"
        words = [file, notes, str(steps)]
        if kind != "bare":
            words = ["-m", "surefoot", "watch", file, "--dir", str(seen), "--json", "--", notes, str(steps)]
        if script == "two_ranks":
            words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
        env = peers.environment(checkout)
        done = subprocess.run([python, *words], cwd=BENCH, env=env, capture_output=True, text=True)
        if not Path(f"{notes}.0").exists():
            raise SystemExit(f"{script} failed:\n{done.stderr[-3000:]}")
        found = json.loads(Path(f"{notes}.0").read_text(encoding="utf-8"))
        if kind == "watched":
            found["differences"] = differences(script, read_watched(seen).steady)
        return found


def _told(each: dict[str, Any]) -> str:
    prices = f"{each['ratio']:.3f} of bare, {each['booked']:.2f} while booked, {each['checked']:.2f} while checked"
    losses = "losses identical" if each["identical"] else "LOSSES DIFFER"
    booked = f"BOOKED OTHERWISE: {each['differences']}" if each["differences"] else "booked as by profile"
    over = each.get("over_before")
    before = "; of that checkout " + ", ".join(f"{name} {over[name]:.3f}" for name in PRICES) if over else ""
    return f"{prices}; {losses}; {booked}{before}"


def _interval(turns: Comparison) -> str:
    return f"{turns.ratio:.3f}, {turns.confidence:.0%} sure of {turns.low:.3f} to {turns.high:.3f}"


def markdown(found: dict[str, dict[str, Any]], turns: Comparison) -> str:
    """One line for each script, and one for the steps in turns."""
    lines = [
        "| script | after step 100 | while booked | while checked | losses | booked as by profile |",
        "|---|---|---|---|---|---|",
    ]
    for script, each in found.items():
        prices = f"{each['ratio']:.3f} | {each['booked']:.2f} | {each['checked']:.2f}"
        same = "identical" if each["identical"] else "differ"
        lines.append(f"| {SCRIPTS[script]} | {prices} | {same} | {'no' if each['differences'] else 'yes'} |")
    return "\n".join([*lines, f"| steps in turns in one process | {_interval(turns)} | | | | |"])


if __name__ == "__main__":
    main()
