"""notebook: `%load_ext surefoot`, then a cell that begins with `%%watch` runs as ever and shows what it took."""

from __future__ import annotations

from typing import Any

from surefoot.records.watched import Watched
from surefoot.watch import watch_call


def register(shell: Any) -> None:
    """Gives the shell of a notebook the cell magic `%%watch [STEPS]`."""

    def watch(line: str, cell: str) -> Watched:
        """Runs the cell and watches its training loop; with a number, stops it after so many updates."""
        steps = int(line) if line.strip() else None
        return watch_call(lambda: _run(shell, cell), name="this cell", steps=steps)

    shell.register_magic_function(watch, "cell", "watch")


def _run(shell: Any, cell: str) -> None:
    """The cell in the notebook's own names; unlike `run_cell`, what it raises comes through."""
    exec(compile(shell.transform_cell(cell), "<watched cell>", "exec"), shell.user_ns)
