"""One run of a probed script, in a process of its own that writes nothing outside of its folder."""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot.debug.probe.loop import Loop
from surefoot.debug.probe.order import ANSWER, Order, Ran
from surefoot.debug.probe.said import Said
from surefoot.errors import first_line
from surefoot.randomness import seed_all
from surefoot.recipe.run_script import StopScript, run_script
from surefoot.records.codec import from_json, to_json
from surefoot.source.owners import owner
from surefoot.torch_inside.patches import patched
from surefoot.world.card.files import Held, held_back
from surefoot.world.child_processes import tie_to_parent


def rerun(order: Order) -> None:
    """Runs the script and writes what it showed; copies of its last evaluation write theirs."""
    began, said = _cpu_seconds(), Said()
    loop, error = Loop(order, said), ""
    held = Path(order.folder) / "files"
    held.mkdir(parents=True, exist_ok=True)
    with ExitStack() as entered:
        entered.enter_context(_silent(said))
        entered.enter_context(held_back(Held(held)))
        entered.enter_context(_seeded(order.seed))
        entered.enter_context(loop.followed())
        alive: Any = None
        try:
            alive = run_script(order.script, order.args)
        except StopScript:
            pass
        except BaseException as raised:
            error = first_line(raised)
        _hear_lightning(said)
        loop.copies.end()
        if loop.is_copy:
            began = _cpu_seconds()
        loop.end()
        del alive
    said.finish()
    answer = Path(order.folder) / (f"copy-{loop.copies.number}.json" if loop.is_copy else ANSWER)
    answer.write_text(to_json(_answer(order, loop, error, _cpu_seconds() - began), indent=None), encoding="utf-8")


def _answer(order: Order, loop: Loop, error: str, seconds: float) -> Ran:
    lines = tuple(loop.said.lines) if loop.is_copy or not loop.last_lines or loop.evaluating else loop.last_lines
    return Ran(
        name=order.name,
        updates=loop.updates,
        losses=tuple(loop.losses[update] for update in range(loop.updates)),
        batches=tuple(loop.batches),
        lines=lines,
        outputs=tuple(loop.outputs.hashes),
        changed=loop.changed,
        mixed=tuple(loop.outputs.mixed),
        evaluations=tuple(loop.evaluations),
        roles=loop.roles() if order.looks else order.roles,
        places=loop.places,
        facts=loop.facts,
        terms=tuple(loop.terms.found),
        no_terms=loop.terms.refused,
        modules=_imported(order.script) if order.looks else (),
        error=error,
        no_copies=loop.copies.refused,
        cpu_seconds=seconds,
    )


def _imported(script: str) -> tuple[str, ...]:
    """The modules of installed packages, as they were imported. None if the script may set what they read before."""
    if "environ" in Path(script).read_text(encoding="utf-8", errors="replace"):
        return ()
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return tuple(name for name, file in files.items() if file and owner(file) == "installed")


def _cpu_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@contextmanager
def _silent(said: Said) -> Iterator[None]:
    """What the script prints is heard and not shown."""
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = said
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def _seeded(offset: int) -> Iterator[None]:
    """Random numbers that do not differ between runs; with an offset, every seed of the script is another one."""
    seed_all(offset)

    def make(plain: Any) -> Any:
        def seed(*args: Any, **kwargs: Any) -> Any:
            args = tuple(each + offset if isinstance(each, int) else each for each in args)
            named = {name: each + offset if isinstance(each, int) else each for name, each in kwargs.items()}
            return plain(*args, **named)

        return seed

    with ExitStack() as entered:
        places = ((torch, "manual_seed"), (random, "seed"), (np.random, "seed"), (np.random, "default_rng"))
        for owner, name in places if offset else ():
            entered.enter_context(patched(owner, name, make))
        yield


def _hear_lightning(said: Said) -> None:
    """The metrics that Lightning's trainers hold, which scripts need not print."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        trainer = getattr(sys.modules.get(package), "Trainer", None)
        for each in gc.get_objects() if trainer is not None else ():
            if type(each) is trainer:
                for name, value in each.callback_metrics.items():
                    said.hear(f"{name} {float(value)!r}")


def main() -> None:
    """Serves orders: each line of stdin names a file with one. A fork runs it, and stdout says when it has ended."""
    tie_to_parent()
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_RDWR)
    orders = os.fdopen(os.dup(0), "r", buffering=1)
    for number in (0, 1):
        os.dup2(nothing, number)
    for line in iter(orders.readline, ""):
        order = from_json(Order, Path(line.strip()).read_text(encoding="utf-8"))
        _load(order.modules)
        child = os.fork()
        if not child:
            _run(order)
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")


def _load(modules: Sequence[str]) -> None:
    """Imports modules once for all runs. What they say is not shown, and one that fails may fail in the script."""
    shown, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    for name in modules:
        if name not in sys.modules:
            with suppress(BaseException):
                importlib.import_module(name)
    os.dup2(shown, 2)
    os.close(shown)
    os.close(nothing)


def _run(order: Order) -> None:
    """The process of one run. It leaves without exit handlers: they belong to the process it was forked from."""
    tie_to_parent()
    try:
        said = os.open(Path(order.folder) / "said.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 2)
        rerun(order)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
