"""overhead: what a trainer costs: its tokens per second over those of a loop written by hand, doing the same work.

    python bench/overhead.py [--quick] [--rounds N] [--against CHECKOUT] [--out FILE] [--markdown]

The work is the recipe `gpt` in two sizes (`trainers/works.py`), one thread, float32, two micro-batches to a step,
clipping, a schedule. Every trainer logs the loss, the learning rate and, but for Lightning, the norm of every step
to a file, in its own way; each has checkpoints switched on, none of which falls into the time measured. surefoot's
log also holds the numbers of the samples; its guards (nonfinite, spikes, watchdog, signals) and its lock are on. Nobody
shows a progress bar.

Each trainer lives in a process of its own that stands still but for its turn. In every round each takes a block of
steps, and the loop by hand takes one before and one after it; what counts is the ratio to the mean of these two, by the
clock and by CPU seconds. A second loop by hand is measured like the others: it shows how much is noise.

For all of them glibc keeps the memory that is freed. Otherwise the end of the heap goes back to the kernel or stays by
how the last objects happen to lie: for one and the same process always the same, worth 6% of a step.

With `--against`, the surefoot of another checkout takes its turn too, and the last line has the speed of this one over
that one, round by round.

Then `trainers/glanced.py`: what the checks of `train` add, from steps looked at and bare ones in turns; and
`checkpoint_stall.py`: how long a run stands still for an asynchronous save, over a clone of the same tensors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from checkpoint_stall import gpt2, ratio
from checkpoint_stall import measure as stalls
from record import write_record
from trainers import peers
from trainers.glanced import LOOKS, STEPS, glanced, share
from trainers.job import Job, write_job
from trainers.served import Served
from trainers.works import TIMED

HAND, AGAIN, BEFORE = "by hand", "by hand again", "surefoot before"
TRAINERS = (HAND, "surefoot", *peers.PEERS, AGAIN)
HEAP = {"MALLOC_TRIM_THRESHOLD_": str(20 << 30), "MALLOC_MMAP_THRESHOLD_": str(4 << 30)}
BLOCK_SECONDS = 0.1
ROUNDS = {"gpt short": 61, "gpt long": 15}
BY_CLOCK, BY_CPU = 0, 1


class Pair(NamedTuple):
    """Seconds and CPU seconds of a trainer's block, and of the loop by hand around it."""

    own: list[float]
    hand: list[float]


Round = dict[str, Pair]


# ------------------------------------------------------------------------------------------- blocks of steps


def begin(trainer: Served, work: str, folder: Path, block: int) -> None:
    """Starts a run, and waits for the end of its first block, in which everything is set up."""
    here = folder / trainer.name.replace(" ", "-")
    here.mkdir()
    job = folder / f"{here.name}.json"
    asked = Job(work=work, folder=str(here), answer="", steps=1_000_000, resumable=False, knobs={"block": block})
    write_job(job, asked)
    trainer.say(str(job))
    trainer.hear()


def end(trainer: Served) -> None:
    trainer.say("end")
    trainer.hear()


def block_of(trainer: Served) -> list[float]:
    """Seconds and CPU seconds of one block of steps."""
    trainer.say("go")
    return json.loads(trainer.hear())


def rounds_of(trainers: list[Served], work: str, rounds: int, block: int) -> list[Round]:
    """How long each trainer's block lasted in every round, and the two of the loop by hand before and after it."""
    hand, *others = trainers
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for trainer in trainers:
            begin(trainer, work, Path(folder), block)
        before = block_of(hand)
        for number in range(rounds):
            lasted = {}
            for trainer in others[::-1] if number % 2 else others:
                own, after = block_of(trainer), block_of(hand)
                lasted[trainer.name] = Pair(own, [(a + b) / 2 for a, b in zip(before, after, strict=True)])
                before = after
            found.append(lasted)
        for trainer in trainers:
            end(trainer)
    return found


def steps_to_fill(trainer: Served, work: str, seconds: float) -> int:
    """How many steps of a trainer take so many CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        begin(trainer, work, Path(folder), 1)
        step = min(block_of(trainer)[BY_CPU] for _ in range(3))
        end(trainer)
    return max(1, round(seconds / step))


def ratios(found: list[Round], name: str, by: int) -> list[float]:
    """Of every round: the speed of a trainer over that of the loop by hand."""
    return [lasted[name].hand[by] / lasted[name].own[by] for lasted in found]


def over_before(found: list[Round], by: int) -> list[float]:
    """Of every round: the speed of surefoot over that of the other checkout."""
    return [lasted[BEFORE].own[by] / lasted["surefoot"].own[by] for lasted in found]


def spread(values: list[float]) -> tuple[float, float, float]:
    """The median, and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


# ------------------------------------------------------------------------------------------- what is printed


def table(work: str, found: list[Round], block: int) -> list[str]:
    """A line for each trainer: tokens per second, and its ratios to the loop by hand."""
    tokens = block * TIMED[work]().tokens_per_step
    step = statistics.median(pair.hand[BY_CPU] for lasted in found for pair in lasted.values()) / block
    lines = [
        f"{work}: {1000 * step:.0f} ms of CPU to a step, blocks of {block} steps, {len(found)} rounds",
        f"  {'trainer':14} {'tokens/s':>9}  {'over by hand':>12} {'quartiles':>15}  {'by CPU':>11} {'quartiles':>15}",
    ]
    for name in sorted(found[0], key=(*TRAINERS, BEFORE).index):
        speed = tokens / statistics.median(lasted[name].own[BY_CLOCK] for lasted in found)
        wall, cpu = (spread(ratios(found, name, by)) for by in (BY_CLOCK, BY_CPU))
        lines.append(
            f"  {name:14} {speed:9,.0f}  {wall[0]:12.3f}   {wall[1]:.3f} - {wall[2]:.3f}  "
            f"{cpu[0]:11.3f}   {cpu[1]:.3f} - {cpu[2]:.3f}"
        )
    return lines


def markdown(measured: dict[str, list[Round]], trainers: Sequence[str]) -> str:
    """One line for each trainer: over the loop by hand, by the clock and by CPU time."""
    names = [f"{work}{by}" for work in measured for by in ("", ", CPU")]
    lines = ["| | " + " | ".join(names) + " |", "|---" + "|---:" * len(names) + "|"]
    for name in trainers:
        pairs = [spread(ratios(found, name, by)) for found in measured.values() for by in (BY_CLOCK, BY_CPU)]
        lines.append(f"| {name} | " + " | ".join(f"{a:.3f} ({b:.3f} to {c:.3f})" for a, b, c in pairs) + " |")
    return "\n".join(lines)


def result(
    measured: dict[str, list[Round]], trainers: Sequence[str], looks: float, saves: list[dict[str, dict[str, float]]]
) -> str:
    """Of each trainer the lower of its two sizes."""
    parts = []
    for name in [each for each in trainers if each != AGAIN]:
        for key, by in (("", BY_CLOCK), ("_cpu", BY_CPU)):
            lowest = min(statistics.median(ratios(found, name, by)) for found in measured.values())
            parts.append(f"{name.replace(' ', '_')}_over_bare{key}={lowest:.3f}")
    if BEFORE in trainers:
        for key, by in (("", BY_CLOCK), ("_cpu", BY_CPU)):
            lowest = min(statistics.median(over_before(found, by)) for found in measured.values())
            parts.append(f"surefoot_over_before{key}={lowest:.3f}")
    parts += [
        f"save_stall_over_clone{key}={ratio(saves, 'stall', by):.2f}" for key, by in (("", "wall"), ("_cpu", "cpu"))
    ]
    return " ".join(["RESULT", *parts, f"checks_share_pct={100 * looks:.2f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smaller size, 15 rounds, a smaller state to save")
    parser.add_argument("--rounds", type=int, help="how often each takes its turn")
    parser.add_argument("--trainers", help=f"only these of {', '.join(TRAINERS[1:])}")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout of surefoot, in turns")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--markdown", action="store_true", help="also print a table for the docs")
    arguments = parser.parse_args()
    names = arguments.trainers.split(",") if arguments.trainers else TRAINERS[1:]
    names = [*names, BEFORE] if arguments.against else names
    works = list(TIMED)[:1] if arguments.quick else list(TIMED)
    measured: dict[str, list[Round]] = {}
    os.environ.update(HEAP)  # for the processes of the trainers
    with ExitStack() as closing:
        against = arguments.against.resolve() if arguments.against else None
        trainers = [Served(name, against if name == BEFORE else None) for name in (HAND, *names)]
        for trainer in trainers:
            closing.callback(trainer.close)
        for work in works:
            block = steps_to_fill(trainers[0], work, BLOCK_SECONDS)
            rounds = arguments.rounds or (15 if arguments.quick else ROUNDS[work])
            measured[work] = rounds_of(trainers, work, rounds, block)
            print("\n".join(table(work, measured[work], block)), flush=True)
    torch.set_num_threads(1)
    looked = glanced(TIMED[works[0]](), 12 if arguments.quick else 36)
    print(
        f"checks: a step that is looked at takes {looked.ratio:.2f} times a bare one ({looked.low:.2f} to "
        f"{looked.high:.2f}); {LOOKS} of the first {STEPS:,} are: {100 * share(looked):.2f}% of their time"
    )
    state = gpt2(layers=2, vocabulary=8192) if arguments.quick else gpt2()
    print("seconds, and in brackets those that the thread worked; stall: until an asynchronous save returns")
    saves = stalls(state, 3 if arguments.quick else 7, peers=False)[1:]
    if arguments.markdown:
        print("\n" + markdown(measured, names) + "\n")
    if arguments.out:
        write_record(
            arguments.out, {"versions": peers.versions(), "rounds": measured, "looks": asdict(looked), "saves": saves}
        )
    print(result(measured, names, share(looked), saves))


if __name__ == "__main__":
    main()
