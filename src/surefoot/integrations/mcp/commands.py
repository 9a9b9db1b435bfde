"""Runs `surefoot ... --json` in a process of its own and returns the record that it prints."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.errors import RunError
from surefoot.integrations.mcp import limited
from surefoot.integrations.mcp.bounds import Bounds

_SUREFOOT = (
    "import sys; sys.path[:] = filter(None, sys.path); sys.argv[0] = 'surefoot'; "
    "from surefoot.cli.main import main; main()"
)
"""As `python -m surefoot`, but no file of the current folder can stand in for a module of surefoot's."""
_MOST_SAID = 1500
"""Characters of an error message: the last ones."""


@dataclass
class Commands:
    """Runs one command at a time, however many are asked for."""

    bounds: Bounds
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def record(self, words: Sequence[str]) -> Any:
        """The record of a command, as JSON values. An error holds the last lines that the command printed."""
        async with self._turn:
            code, printed, said = await self._run([*words])
        if code == limited.TOO_LONG:
            raise RunError(
                f"ended after {self.bounds.seconds:g} seconds, the limit of one call; a person can run: surefoot "
                f"{words[0]} ...{_last(said)}"
            )
        found = record_in(printed)
        if found is None:
            raise RunError(f"surefoot {words[0]} ended with exit code {code} and no answer{_last(said)}")
        return found

    async def _run(self, words: list[str]) -> tuple[int, str, str]:
        command = [sys.executable, "-c", _SUREFOOT, *words]
        pipe = subprocess.PIPE
        # The outer process reads nothing of the folder: -I leaves out its modules and those that variables name.
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", limited.__file__, f"{self.bounds.seconds:g}", *command),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self.bounds.folder,
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            printed, said = await asyncio.gather(child.stdout.read(), child.stderr.read())
            code = await child.wait()
        finally:
            child.stdin.close()  # also when the call is cancelled: it ends all that still runs
        return code, printed.decode(errors="replace"), said.decode(errors="replace")


def record_in(printed: str) -> Any:
    """The last JSON object that begins on a line of its own; None if there is none.

    A script may write to the same file descriptor before and after the record.
    """
    start = printed.rfind("\n{\n") + 1 or (0 if printed.startswith("{\n") else -1)
    if start < 0:
        return None
    try:
        return json.JSONDecoder().raw_decode(printed, start)[0]
    except ValueError:
        return None


def _last(said: str) -> str:
    text = "\n".join(line for line in said.splitlines() if line.strip())
    return f"; its last output:\n{text[-_MOST_SAID:]}" if text else ""
