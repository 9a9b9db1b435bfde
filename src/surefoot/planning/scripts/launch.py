"""How a script is started: `train.py`, `python -m module`, `torchrun ...`, `accelerate launch ...`, a command.

Whatever starts Python is read, and what it would start is run in this process as its first rank.
"""

from __future__ import annotations

import runpy
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from surefoot.errors import RunError
from surefoot.source.owners import name_as_users, package_of


class Launch(NamedTuple):
    """What to run, with which arguments, and the ranks that the launcher would start.

    `words` are those after `torchrun` and its options: `train.py --lr 1e-3`.
    """

    name: str
    run: Callable[[], object]
    words: tuple[str, ...]
    ranks: int | None = None


def launch_of(words: Sequence[str]) -> Launch:
    """Reads a command line."""
    first, *rest = words
    base = Path(first).name
    if base in ("torchrun", "torchrun.exe"):
        return _torchrun(rest)
    if base == "accelerate" and rest[:1] == ["launch"]:
        return _accelerate(rest[1:])
    if base.startswith("python") and not first.endswith(".py"):
        return _python(rest)
    if first == "-m":
        return _module(rest)
    if Path(first).is_file() and (first.endswith(".py") or not _command(base)):
        return Launch(base, lambda: _run_file(first, rest), (first, *rest))
    return _console(base, rest)


def _python(words: Sequence[str]) -> Launch:
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-m":
        left = left[2 if left[0] in ("-W", "-X") else 1 :]
    if left[:3] == ["-m", "torch.distributed.run", *left[2:3]]:
        return _torchrun(left[2:])
    return launch_of(left) if left else _nothing("python")


def _module(words: Sequence[str]) -> Launch:
    if not words:
        return _nothing("-m")
    name, *args = words

    def run() -> object:
        return _with_arguments(name, args, lambda: runpy.run_module(name, run_name="__main__"))

    return Launch(name, run, ("-m", *words))


def _torchrun(words: Sequence[str]) -> Launch:
    from torch.distributed.run import get_args_parser

    asked = get_args_parser().parse_args(list(words))
    here = int(asked.nproc_per_node) if str(asked.nproc_per_node).isdigit() else 1
    return _started(asked, here * int(str(asked.nnodes).rpartition(":")[2]))


def _accelerate(words: Sequence[str]) -> Launch:
    import os

    from accelerate.commands.launch import launch_command_parser

    asked = launch_command_parser().parse_args(list(words))
    if asked.mixed_precision:
        os.environ["ACCELERATE_MIXED_PRECISION"] = asked.mixed_precision
    return _started(asked, asked.num_processes or 1)


def _started(asked: Any, ranks: int) -> Launch:
    words = [asked.training_script, *asked.training_script_args]
    return launch_of(["-m", *words] if asked.module else words)._replace(ranks=ranks)


def _command(name: str) -> Any:
    found = entry_points(group="console_scripts", name=name)
    return next(iter(found), None)


def _console(name: str, args: Sequence[str]) -> Launch:
    """A command that a package has installed, such as `llamafactory-cli`."""
    command = _command(name)
    if command is None:
        what = "is no Python command" if shutil.which(name) else "is neither a file nor a command"
        raise RunError(
            f"{name} {what}; write train.py, torchrun ... train.py, python -m module or an installed command"
        )
    name_as_users(command.value.partition(":")[0].partition(".")[0])

    def run() -> object:
        return _with_arguments(name, args, lambda: command.load()())

    return Launch(name, run, ("--no-python", name, *args))


def _run_file(file: str, args: Sequence[str]) -> object:
    folder = str(Path(file).resolve().parent)
    name_as_users(package_of(str(Path(file).resolve())))
    return _with_arguments(file, args, lambda: runpy.run_path(file, run_name="__main__"), folder)


def _with_arguments(name: str, args: Sequence[str], run: Callable[[], object], folder: str = "") -> object:
    argv, path = sys.argv, list(sys.path)
    sys.argv = [name, *args]
    sys.path.insert(0, folder)
    try:
        return run()
    finally:
        sys.argv, sys.path[:] = argv, path


def _nothing(name: str) -> Launch:
    raise RunError(f"{name} starts nothing here: name a script")
