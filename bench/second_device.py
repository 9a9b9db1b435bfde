"""second_device: how often a watched step waits for the device, and how many bytes watching takes there.

    python bench/second_device.py [--quick] [--tensors N ...] [--places] [--out FILE]
    python bench/second_device.py --findings [N] [--jobs N] [--out FILE]

A CPU never waits, so these figures are counted on the device of `tests/second_device`: host memory, and a count of each
read for which the host would wait on a GPU. Networks with 6, 66 and 300 parameter tensors make 110 updates, bare and
watched. The loop itself reads nothing. Watching looks closely at updates 1 to 12, less at 13 to 100, and later only
counts; its budget of seconds is lifted, so that the figures are the most that can happen and the same on any machine.

`waits` are those of one update: the most of each part. `added_bytes` is by how much the peak of an update rises. With
`--places`, also the lines of surefoot that wait most. With `--quick`, 6 tensors and 16 updates.

`--findings` watches N programs of the corpus (40) on the CPU and, as default device, on the second device, and compares
the findings by check, severity and place. Programs that do not run there, mostly because numpy makes their data, are
passed over.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import silent_bugs
import torch
from bugs.forks import ALWAYS, Forks
from corpus.programs import Program, programs
from corpus.split import digest
from record import write_record
from tests import second_device
from torch import nn

from surefoot.watch import CHECKED_STEPS, watch_call

TENSORS = (6, 66, 300)
LOOKED_AT = 12
UPDATES = CHECKED_STEPS + 10
QUICK = 16
PARTS = {"first": range(LOOKED_AT), "looked": range(LOOKED_AT, CHECKED_STEPS), "later": range(CHECKED_STEPS, UPDATES)}
WIDTH, BATCH = 32, 64
PROGRAMS = 40
_MARKS = re.compile(r'num_workers|"cpu"')
"""Programs with one of these stay on the host, or hand tensors of a device from process to process."""
UNLIMITED = 1e9
"""The share of the script's time that checks may take: no limit."""


class Update(NamedTuple):
    """What one update did: how often the host waited, and the peak of its bytes."""

    waits: int
    peak_bytes: int


def main() -> None:
    asked = _asked()
    if second_device.MISSING:
        print(f"RESULT skipped: {second_device.MISSING}")
        return
    if asked.findings:
        compare_findings(asked.findings, asked.jobs, asked.out)
        return
    second_device.register()
    sizes, updates = asked.tensors or (TENSORS[:1] if asked.quick else TENSORS), QUICK if asked.quick else UPDATES
    found = {}
    for tensors in sizes:
        bare, _ = trained(tensors, updates, lambda run: run())
        watched, places = trained(tensors, updates, lambda run: watch_call(run, name=__file__, overhead=UNLIMITED))
        found[str(tensors)] = compared(bare, watched) | {"places": dict(places.most_common())}
        print(_line(tensors, found[str(tensors)]), flush=True)
        for place, count in places.most_common(12) if asked.places else ():
            print(f"    {count:6d} {place}")
    if asked.out is not None:
        write_record(asked.out, {"updates": updates, "width": WIDTH, "batch": BATCH, "tensors": found})
    print(_result(found))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tensors", type=int, nargs="+", default=None)
    parser.add_argument("--places", action="store_true", help="also print the lines that wait most")
    parser.add_argument("--findings", type=int, nargs="?", const=PROGRAMS, default=0, metavar="N")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once, with --findings")
    parser.add_argument("--out", type=Path, default=None)
    return parser.parse_args()


def trained(
    tensors: int, updates: int, call: Callable[[Callable[[], None]], object]
) -> tuple[list[Update], Counter[str]]:
    """Trains a network with this many parameter tensors, bare or watched. Also returns the places that waited."""
    found, places = list[Update](), Counter[str]()

    def run() -> None:
        gc.collect()  # what an earlier training left is neither counted nor freed meanwhile
        base = second_device.counts().live_bytes
        torch.manual_seed(0)
        layers = [layer for _ in range(tensors // 2) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
        model = nn.Sequential(*layers).to(second_device.NAME)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        batch = torch.randn(BATCH, WIDTH, device=second_device.NAME)
        with second_device.heard(lambda kind: places.update([f"{kind} {_place()}"])):
            for _ in range(updates):
                found.append(update(model, optimizer, batch, base))

    call(run)
    return found, places


def update(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, base: int) -> Update:
    """One update of the loop, counted."""
    second_device.reset_peak()
    before = second_device.counts().waits
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
    after = second_device.counts()
    return Update(after.waits - before, after.peak_bytes - base)


def compared(bare: list[Update], watched: list[Update]) -> dict[str, Any]:
    """By part of a run: the most waits of an update, bare and watched, and the most bytes that watching adds to one."""
    found: dict[str, Any] = {}
    for part, numbers in PARTS.items():
        pairs = [(bare[n], watched[n]) for n in numbers if n < len(bare)]
        if pairs:
            found[part] = {
                "bare_waits": max(one.waits for one, _ in pairs),
                "waits": max(other.waits for _, other in pairs),
                "mean_waits": sum(other.waits for _, other in pairs) / len(pairs),
                "bare_bytes": max(one.peak_bytes for one, _ in pairs),
                "added_bytes": max(other.peak_bytes - one.peak_bytes for one, other in pairs),
            }
    return found | {"waits_of_each": [each.waits for each in watched]}


def compare_findings(wanted: int, jobs: int, out: Path | None) -> None:
    """Watches programs on both devices and compares what is found."""
    scripts = [each for each in programs() if not (each.needs or each.recipe or _MARKS.search(each.source))]
    scripts.sort(key=lambda each: digest(f"second device {each.name}"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as threads:
        count = [-(-wanted // jobs)] * jobs
        lanes = threads.map(_compared_lane, (scripts[n::jobs] for n in range(jobs)), count, (Path(folder),) * jobs)
        rows = {name: row for lane in lanes for name, row in lane.items()}
    ran = {name: row for name, row in rows.items() if row["runs"]}
    differ = [name for name, row in ran.items() if row["cpu"] != row["second"]]
    if out is not None:
        write_record(out, rows)
    named = sum(bool(row["cpu"]) for row in ran.values())
    print(f"RESULT programs={len(ran)} with_findings={named} passed_over={len(rows) - len(ran)} differ={len(differ)}")
    sys.exit(bool(differ))


def _compared_lane(scripts: list[Program], wanted: int, folder: Path) -> dict[str, dict[str, Any]]:
    sides = {"cpu": Forks(sys.executable, [*ALWAYS]), "second": Forks(sys.executable, [*ALWAYS, "everywhere_second"])}
    rows: dict[str, dict[str, Any]] = {}
    for script in scripts:
        if sum(row["runs"] for row in rows.values()) == wanted:
            break
        file = silent_bugs.write(script, folder)
        if sides["second"].run(do="plain", file=str(file), arguments=[])["code"] != 0:
            rows[script.name] = {"runs": False}
            continue
        row: dict[str, Any] = {"runs": True}
        for side, forks in sides.items():
            forks.run(do="surefoot", file=str(file), arguments=silent_bugs.door(script, file))
            row[side] = _told(file)
        rows[script.name] = row
        print("same" if row["cpu"] == row["second"] else "OTHER", script.name, row["cpu"], flush=True)
        if row["cpu"] != row["second"]:
            print("    on the second device:", row["second"], flush=True)
    for forks in sides.values():
        forks.close()
    return rows


def _told(file: Path) -> list[list[str]]:
    """The findings by check, severity and place, or how the command failed."""
    output = (file.parent / "stdout").read_text()
    failure = re.search(r'"failure": "(.+)"', output)
    if failure or '"findings"' not in output:
        return [["failed", failure[1] if failure else (file.parent / "stderr").read_text()[-400:]]]
    return sorted([each["check"], each["severity"], each["where"]] for each in silent_bugs.findings_in(output))


def _place() -> str:
    """The nearest line of surefoot on the stack of this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        _, inside, file = frame.f_code.co_filename.rpartition("/src/surefoot/")
        if inside:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "the script"


def _line(tensors: int, found: dict[str, Any]) -> str:
    parts = (
        f"{part} {each['waits']} waits (mean {each['mean_waits']:.1f}, bare {each['bare_waits']}), "
        f"{each['added_bytes']} bytes more than {each['bare_bytes']}"
        for part, each in found.items()
        if part in PARTS
    )
    return f"{tensors:4d} parameter tensors: " + "; ".join(parts)


def _result(found: dict[str, dict[str, Any]]) -> str:
    words = [
        f"{name}_{part}_{tensors}={each[part][name]}"
        for tensors, each in found.items()
        for part in PARTS
        if part in each
        for name in ("waits", "added_bytes")
    ]
    return " ".join(["RESULT", *words])


if __name__ == "__main__":
    main()
