"""Served: a trainer in a process that has loaded everything; each job in a fresh process, forked from it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from trainers import peers

OURS = {"surefoot": "by_surefoot", "surefoot before": "by_surefoot", "by hand": "by_hand", "by hand again": "by_hand"}


class Served:
    """Starts at once; `say` and `hear` are lines to and from it. All modules are those of the `checkout`, if given."""

    def __init__(self, name: str, checkout: Path | None = None) -> None:
        here = checkout / "bench" if checkout else peers.BENCH
        interpreter = peers.python() if name in peers.PEERS else sys.executable
        self.name, self._errors = name, tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(
            [interpreter, "-m", "trainers", (OURS | peers.PEERS)[name]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, env=peers.environment(checkout), cwd=here,
        )  # fmt: skip

    def __call__(self, job: Path) -> None:
        """Does one job, to its end."""
        self.say(str(job))
        while (answer := self.hear()) != "done":
            raise RuntimeError(f"{self.name} said {answer!r}")

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"{self.name} ended: {self._errors.read()[-2000:].decode()}")
        return line.strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
