"""unchanged: whether `surefoot watch` changes anything that a script prints, trains or draws.

    python bench/unchanged.py [--quick] [--scripts a b] [--corpus N] [--seed N] [--out FILE]

Each script runs bare and watched, in processes of its own that are forked from one that has imported torch. Compared
bit for bit are everything that it prints, of
training and of evaluation, the weights and buffers of every model that is still there at its end, and the states of the
generators of torch, numpy and Python. The scripts are those in `loops/` and base programs of the corpus, which are
drawn anew each time unless `--seed` names a draw. A script that differs is run bare once more: if that differs too, it
prints times or draws unseeded numbers, and is counted as `unrepeatable` instead. With `--quick`, five of them.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import runpy
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
LOOPS = tuple(sorted(each.stem for each in (BENCH / "loops").glob("*.py")))
MOST_SECONDS = 300


def main() -> None:
    asked = _asked()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    chosen = _chosen(asked, random.Random(seed))
    print(f"{len(chosen)} scripts, drawn with --seed {seed}", flush=True)
    _prepare()
    found = {}
    for name, source in chosen.items():
        found[name] = compared(source)
        print(f"{name:40s} {found[name]}", flush=True)
    if asked.out is not None:
        from record import write_record

        write_record(asked.out, {"seed": seed, "scripts": found})
    told = [each.split(":")[0] for each in found.values()]
    same = told.count("unchanged") + told.count("CHANGED")
    print(f"RESULT scripts={same} changed={told.count('CHANGED')} unrepeatable={told.count('unrepeatable')}")
    sys.exit("CHANGED" in told)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scripts", nargs="+", default=None, help="names of loops and of base programs")
    parser.add_argument("--corpus", type=int, default=None, help="how many programs of the corpus; 45 unless told")
    parser.add_argument("--seed", type=int, default=None, help="draws the programs; printed at the start")
    parser.add_argument("--out", type=Path, default=None)
    return parser.parse_args()


def _chosen(asked: argparse.Namespace, draw: random.Random) -> dict[str, str]:
    """The scripts by name."""
    sys.path.insert(0, str(BENCH.parent))
    from corpus.programs import programs_of

    def of_corpus(name: str) -> str | None:
        program = next(programs_of(name))
        installed = program.needs is None or (program.needs != "torchrun" and find_spec(program.needs) is not None)
        return program.source if program.recipe is None and installed else None

    def read(name: str) -> str:
        return (BENCH / "loops" / f"{name}.py").read_text(encoding="utf-8")

    if asked.scripts:
        return {name: read(name) if name in LOOPS else of_corpus(name) or "" for name in asked.scripts}
    from corpus.programs import bases

    names, found = bases(), {}
    draw.shuffle(names)
    most = asked.corpus if asked.corpus is not None else (2 if asked.quick else 45)
    for name in names:
        if len(found) < most and (source := of_corpus(name)) is not None:
            found[name] = source
    loops = draw.sample(LOOPS, 3) if asked.quick else LOOPS
    return {**{name: read(name) for name in loops}, **found}


def _prepare() -> None:
    """Imports what every script needs, so that forked processes have it."""
    import torch
    import torch._dynamo

    import surefoot.checks.watcher
    import surefoot.meters.books
    import surefoot.watch  # noqa: F401

    torch.set_num_threads(1)


def compared(source: str) -> str:
    """What became of a script: `unchanged`, `CHANGED: where`, or `unrepeatable`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(source, encoding="utf-8")
        bare, watched = run(script, "bare"), run(script, "watched")
        if bare == watched:
            return f"unchanged: {len(bare)} lines"
        if bare != (again := run(script, "bare")):
            return f"unrepeatable: {_difference(bare, again)}"
        return f"CHANGED: {_difference(bare, watched)}"


def run(script: Path, kind: str) -> list[str]:
    """The lines that a script prints, and what is left at its end; the last line is its status."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "work").mkdir()
        process = multiprocessing.get_context("fork").Process(target=child, args=(kind, str(script), folder))
        process.start()
        process.join(MOST_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        printed, told = (
            (here / name).read_text(encoding="utf-8", errors="replace") if (here / name).exists() else ""
            for name in ("out", "err")
        )
    failed = [told.strip().rpartition("\n")[2]] if process.exitcode else []
    ours = [line for line in told.splitlines() if "surefoot stopped" in line]
    return [*printed.splitlines(), *failed, *ours, f"status {process.exitcode}"]


def _difference(one: list[str], other: list[str]) -> str:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return f"{a[:80]!r} and {b[:80]!r}"
    return f"{len(one)} and {len(other)} lines"


# ------------------------------------------------------------------------------------------- in the child process


def child(kind: str, script: str, folder: str) -> None:
    """Runs a script in this process, which was forked for it, and prints what is left at its end."""
    import numpy as np
    import torch

    from surefoot.watch import watch_call

    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.chdir(os.path.join(folder, "work"))
    sys.argv, sys.path[0] = [script], str(Path(script).parent)
    torch.manual_seed(0), np.random.seed(0), random.seed(0)

    def ran() -> dict[str, Any]:
        try:
            left = runpy.run_path(script, run_name="__main__")
        finally:
            sys.stdout.flush()
        print("\n".join(_left(left)), flush=True)
        return left

    if kind == "bare":
        ran()
    else:
        watch_call(ran, name=script)


def _left(variables: dict[str, Any]) -> list[str]:
    """Hashes of the weights of all models, and of the states of all generators."""
    import torch

    states = [torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode()]
    if "numpy" in sys.modules:
        import numpy as np

        states.append(repr(np.random.get_state()).encode())
    found = [f"generators {[hashlib.sha256(each).hexdigest()[:12] for each in states]}"]
    for name, value in sorted(variables.items()):
        if isinstance(value, torch.nn.Module):
            digest = hashlib.sha256()
            for each in value.state_dict().values():
                if isinstance(each, torch.Tensor):
                    digest.update(each.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
            found.append(f"{name} {digest.hexdigest()[:12]}")
    return found


if __name__ == "__main__":
    main()
