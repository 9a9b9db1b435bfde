"""memory_limit: models that do not fit a limit, and the settings that the explanation names.

    python bench/memory_limit.py [--quick] [--only NAME] [--out FILE]

Each of ten models (`memory_limit_models.py`) trains for four steps by `surefoot train --memory-limit`. The limit is
what stays between steps and half of what the plan adds to it, so that the model does not fit as it is. A run counts as
fitting if it finishes under the limit:

named    the first setting that the explanation names: must fit
before   the recipe as it is: must not
beyond   the next larger setting, of which the explanation says that it does not fit: must not

`--quick` takes three models, drawn anew.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from bugs.forks import ALWAYS, Forks
from memory_limit_models import MODELS
from record import write_record

import surefoot
from surefoot.records.out_of_memory import OutOfMemory, Setting, read_out_of_memory

FILE = Path(__file__).with_name("memory_limit_models.py")
STATE = ("parameters", "buffers", "gradients", "optimizer")
ROOM = 0.5
"""The share of a step's own memory that the limit leaves."""
TIMEOUT = 600
Row = dict[str, Any]


def limit_for(name: str) -> tuple[int, int]:
    """A limit in whole KiB that the recipe does not keep, and its planned peak in bytes."""
    planned = surefoot.plan(surefoot.load_recipe(f"{FILE}:{name}"))
    held = sum(planned.steady.tally.total(f"memory/{account}") for account in STATE)
    return round((held + ROOM * (planned.live_bytes - held)) / 1024), planned.live_bytes


def trained(name: str, knobs: list[str], limit_kib: int, folder: Path, forks: Forks) -> OutOfMemory | None:
    """Trains under a limit. What is known of the error; None if it finished."""
    folder.mkdir(parents=True)
    words = ["train", f"{FILE}:{name}", *knobs, "--memory-limit", f"{limit_kib}KiB", "--run", str(folder / "run")]
    code = forks.run(do="surefoot", file=str(folder / "file"), arguments=words, timeout=TIMEOUT)["code"]
    known = read_out_of_memory(folder / "run")
    if (code, known is None) not in ((0, True), (1, False)):
        raise SystemExit(f"{name} {knobs}: exit code {code}\n{(folder / 'stderr').read_text()[-2000:]}")
    return known


def measured(name: str, folder: Path, forks: Forks) -> Row:
    """One model: as it is, with the setting that is named, and with the next larger one."""
    began = time.perf_counter()
    limit_kib, planned = limit_for(name)
    known = trained(name, [], limit_kib, folder / "before", forks)
    row: Row = {"model": name, "limit": limit_kib * 1024, "planned": planned, "before_fits": known is None}
    if known is not None:
        row |= {"phase": known.phase, "module": known.module, "outside": known.outside_bytes, "notes": known.notes}
        named = {"named": known.fits[0] if known.fits else None, "beyond": known.beyond}
        for which, setting in named.items():
            if setting is not None:
                row |= _again(which, setting, name, limit_kib, folder, forks)
    row["seconds"] = round(time.perf_counter() - began, 1)
    print(_line(row), flush=True)
    return row


def _again(which: str, setting: Setting, name: str, limit_kib: int, folder: Path, forks: Forks) -> Row:
    knobs = [f"{knob}={value}" for knob, value in setting.knobs.items()]
    found = trained(name, [*knobs, "--no-plan"], limit_kib, folder / which, forks)
    return {which: " ".join(knobs), f"{which}_planned": setting.planned_bytes, f"{which}_fits": found is None}


def _line(row: Row) -> str:
    def mib(size: int | None) -> str:
        return "-" if size is None else f"{size / 2**20:.2f}"

    return (
        f"{row['model']}: limit {mib(row['limit'])} MiB, as it is {mib(row['planned'])} planned, "
        f"{'FITS' if row['before_fits'] else 'fails in ' + str(row.get('phase'))}; "
        f"named {row.get('named', 'NOTHING')}: {mib(row.get('named_planned'))} planned, {_ended(row, 'named')}; "
        f"beyond {row.get('beyond', '-')}: {mib(row.get('beyond_planned'))} planned, {_ended(row, 'beyond')} "
        f"({row['seconds']} s)"
    )


def _ended(row: Row, which: str) -> str:
    return "-" if which not in row else "fits" if row[f"{which}_fits"] else "fails"


def result(rows: list[Row]) -> str:
    named, before = (sum(bool(row.get(f"{which}_fits")) for row in rows) for which in ("named", "before"))
    with_beyond = [row for row in rows if "beyond" in row]
    beyond = sum(row["beyond_fits"] for row in with_beyond)
    return (
        f"RESULT models={len(rows)} named_fits={named} before_fits={before} "
        f"beyond={len(with_beyond)} beyond_fits={beyond}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    names = [each.__name__ for each in MODELS if asked.only in each.__name__]
    if asked.quick:
        names = random.sample(names, min(3, len(names)))
    forks = Forks(sys.executable, [*ALWAYS, "surefoot.ways.train", "surefoot.planning.fit.search"], raising=False)
    with tempfile.TemporaryDirectory() as folder, closing(forks):
        rows = [measured(name, Path(folder) / name, forks) for name in names]
    if asked.out is not None:
        write_record(asked.out, {"models": rows})
    print(result(rows))


if __name__ == "__main__":
    main()
