"""damage: checkpoints, runs, corpora, folders and pages are damaged at random, and command lines are made up.

Who notices?

    python bench/damage.py [--quick] [--seed N] [--part NAME [--only N]] [--tries PART=N] [--out FILE]

| part          | what is tried                                                                                  |
|---------------|------------------------------------------------------------------------------------------------|
| runs          | one mutation of a finished or an unfinished run, read by train, --audit, export, report, ...   |
| links         | a folder or a file of a run, moved away and linked to: nothing may change where the link leads |
| corpora       | one of a corpus, or of tokens that others have written, read by data ... and by training       |
| folders       | hostile or damaged tokenizers, chat templates and tasks, read by data chat, generate, evaluate |
| pages         | hostile strings in the records of a run, and the HTML page that is written from them           |
| command-lines | a command line made up from surefoot's own commands and options, with good and hostile values  |
| checkpoints   | one damaged file of a checkpoint, as surefoot and three others load it                         |

A mutation flips a bit, cuts a file, makes a hole in it, removes it, or puts a directory, a link, a FIFO, a device, a
sparse file or a pickle with a payload in its place; in JSON it changes types, fields, keys, numbers and strings; in a
log, rows; and it forges what is hashed, with hashes that are right, among it pickles that take all memory or time. See
`damaged/mutations.py`, `damaged/runs.py`, `damaged/folders.py`.

A try is read by one command that reads the damaged file, drawn at random; without `--quick`, by every one of them. In
the last line, over all parts:

| accepted   | damage went unnoticed and mattered; exactly what counts is told in `damaged/trying.py`    |
| executed   | code that a file brings was executed, or a page ran a script or asked the network          |
| tracebacks | a Python traceback, a death by signal, or an exit code that surefoot does not document     |
| hangs      | not ended when its time was over                                                           |

Every try has a generator of its own: `--seed N --part runs --only 17` repeats one and prints what was said.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.pop("SUREFOOT_RAISE", None)  # commands are tried as users run them
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: a forked child must not meet threads that are not there

from damaged.asking import Place
from damaged.checkpoints import damage_checkpoints, peer_table
from damaged.command_lines import CommandLines
from damaged.corpora import Corpora
from damaged.folders import Folders
from damaged.links import Links
from damaged.pages import Pages
from damaged.runs import Runs
from damaged.trying import BAD, Part, Toll, failure_lines, try_all
from record import write_record

import surefoot

TRIES = {
    "runs": 500,
    "links": 100,
    "corpora": 250,
    "folders": 250,
    "pages": 100,
    "command-lines": 1000,
    "checkpoints": 500,
}
QUICK = {"runs": 25, "links": 10, "corpora": 10, "folders": 10, "pages": 3, "command-lines": 20, "checkpoints": 40}
SECONDS = 60.0
"""A command that takes longer hangs. The slowest that does not takes 10 s where others share the machine."""
LOADED = (
    "torch._dynamo", "torch.export", "torch.distributed.checkpoint", "surefoot.cli.main", "surefoot.ways.train",
    "surefoot.ways.export", "surefoot.debug.runs.audit", "surefoot.ways.plan", "surefoot.ways.profile",
    "surefoot.ways.check", "surefoot.watch", "surefoot.planning.fit.search", "surefoot.reports.page",
    "surefoot.reports.gather",
    "surefoot.data.inspect", "surefoot.recipes.gpt", "surefoot.exports.evaluate", "surefoot.exports.generate",
    "surefoot.finetuning.chat_corpus", "transformers.models.llama.modeling_llama", "transformers.generation", "lm_eval",
    "pydantic", "networkx", "plotly.offline",
)  # fmt: skip
"""What children would load one by one. Loading alone computes nothing."""


def main() -> None:
    arguments = _arguments()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    tries = _tries(arguments)
    print(f"seed {seed}", flush=True)
    for name in LOADED:
        with suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    gc.freeze()  # what is shared with the children stays shared
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name).resolve())
        place.make()
        tolls = _tolls(place, tries, seed, every=not arguments.quick, only=arguments.only)
        peers = (
            damage_checkpoints(place.root / "checkpoints", tries["checkpoints"], seed) if tries["checkpoints"] else {}
        )
    for line in (*_table(tolls), *peer_table(peers), *_failures(tolls, seed)):
        print(line)
    if arguments.only is not None:
        _print_all(tolls)
    if arguments.out:
        found: dict[str, Any] = {"surefoot": surefoot.__version__, "seed": seed, "seconds": time.perf_counter() - began}
        found |= {"parts": {toll.name: toll.count() for toll in tolls}, "checkpoints": peers}
        found |= {"failures": list(_failures(tolls, seed)), "result": result(tolls, peers)}
        write_record(arguments.out, found)
    print(result(tolls, peers))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about a hundred tries, each with one reader")
    parser.add_argument("--seed", type=int, help="default: the clock")
    parser.add_argument("--part", choices=TRIES, help="only this part")
    parser.add_argument(
        "--tries", action="append", default=[], metavar="PART=N", help="how many of a part; may be repeated"
    )
    parser.add_argument("--only", type=int, metavar="N", help="only this try of the part, and print what was said")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    return parser.parse_args()


def _tries(arguments: argparse.Namespace) -> dict[str, int]:
    tries = dict(QUICK if arguments.quick else TRIES)
    for word in arguments.tries:
        name, _, number = word.partition("=")
        if name not in TRIES:
            sys.exit(f"no part {name!r}; known: {', '.join(TRIES)}")
        tries[name] = int(number)
    return {name: number if arguments.part in (None, name) else 0 for name, number in tries.items()}


def _tolls(place: Place, tries: dict[str, int], seed: int, *, every: bool, only: int | None) -> list[Toll]:
    """The tries of every part whose commands run in children; a part without tries is not even built."""
    needed = any(tries[name] for name in ("runs", "links", "pages", "command-lines"))
    runs = Runs(place, SECONDS) if needed else None
    parts: list[Part] = [runs] if runs and tries["runs"] else []
    if runs and tries["links"]:
        parts.append(Links(runs))
    if tries["corpora"] or tries["command-lines"]:
        corpora = Corpora(place, SECONDS)
        parts += [corpora] if tries["corpora"] else []
    if tries["folders"]:
        parts.append(Folders(place, SECONDS))
    if runs and tries["command-lines"]:
        parts.append(CommandLines(place, SECONDS, runs))
    tolls = [try_all(part, tries[part.name], seed, every=every, only=only) for part in parts]
    if runs and tries["pages"]:
        with Pages(place, SECONDS, runs) as pages:
            tolls.append(try_all(pages, tries["pages"], seed, every=every, only=only))
    return tolls


# ------------------------------------------------------------------------------------------- what is printed


def _table(tolls: list[Toll]) -> Iterator[str]:
    names = ("refused", "same", "shown", *BAD)
    yield f"{'':14} {'tries':>6} {'read':>6} " + " ".join(f"{name:>9}" for name in names)
    for toll in tolls:
        count, read = toll.count(), sum(len(each.verdicts) for each in toll.tries)
        yield f"{toll.name:14} {len(toll.tries):6} {read:6} " + " ".join(f"{count[name]:9}" for name in names)


def _failures(tolls: list[Toll], seed: int) -> Iterator[str]:
    for toll in tolls:
        yield from failure_lines(toll, seed)


def _print_all(tolls: list[Toll]) -> None:
    for one in (each for toll in tolls for each in toll.tries):
        for verdict in one.verdicts:
            answer = verdict.answer
            print(f"{one.mutation}\n{verdict.kind}: surefoot {' '.join(answer.words)}\nexit code {answer.code}")
            print(answer.text[-4000:])


def result(tolls: list[Toll], peers: dict[str, dict[str, Counter[str]]]) -> str:
    """The last line."""
    count = sum((toll.count() for toll in tolls), Counter[str]())
    tries = sum(len(toll.tries) for toll in tolls)
    ours = sum(peers["surefoot"].values(), Counter[str]()) if peers else Counter[str]()
    accepted = count["accepted"] + ours.total() - ours["rejected"]
    rest = f"executed={count['executed']} tracebacks={count['traceback']} hangs={count['hang']}"
    return f"RESULT tries={tries + ours.total()} accepted={accepted} {rest}"


if __name__ == "__main__":
    main()
