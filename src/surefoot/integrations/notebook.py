"""notebook: after `%load_ext surefoot`, a cell that begins with `%%watch` runs as usual and reports its cost."""

from __future__ import annotations

from typing import Any

from surefoot.records.watched import Watched
from surefoot.watch import watch_call


def register(shell: Any) -> None:
    """Adds the cell magic `%%watch [STEPS]` to the shell of a notebook."""

    def watch(line: str, cell: str) -> Watched:
        """Runs the cell and watches its training loop; with a number, stops it after that many updates."""
        steps = int(line) if line.strip() else None
        return watch_call(lambda: _run(shell, cell), name="this cell", steps=steps)

    shell.register_magic_function(watch, "cell", "watch")


def _run(shell: Any, cell: str) -> None:
    """Runs the cell in the notebook's namespace. Unlike `run_cell`, it lets exceptions through."""
    exec(compile(shell.transform_cell(cell), "<watched cell>", "exec"), shell.user_ns)
