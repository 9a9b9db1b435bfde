"""Machine: runs commands of surefoot in real processes, on a disk that fails or is recorded as a test says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
KILL = -9
"""In place of an error: the call kills its process."""


@dataclass(frozen=True)
class Fault:
    """After `skip` of these calls on paths like `path`, so many fail; all that follow, if `times` is negative."""

    path: str
    calls: str
    error: int
    skip: int = 0
    times: int = -1


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    def said(self) -> str:
        """What it printed as its last words, on one line."""
        return " ".join(self.err.split())


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") if sys.platform == "linux" else None


class Machine:
    """One mother process; close it in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, shim = folder, folder / "shim.so"
        command = [
            str(compiler()),
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            "-o",
            str(shim),
            str(HERE / "shim.c"),
        ]
        subprocess.run([*command, "-ldl"], check=True)
        settings = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        self._mother = subprocess.Popen(
            [sys.executable, "-m", "tests.disk.mother"],
            cwd=ROOT,
            env=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready\n"

    def run(self, *words: str, fault: Fault | None = None, record: Path | None = None) -> Done:
        """`surefoot WORDS` in a process of its own."""
        request: dict[str, Any] = {
            "words": words,
            "cwd": str(self.folder),
            "out": str(self.folder / "out"),
            "err": str(self.folder / "err"),
            "fault": None if fault is None else asdict(fault),
            "record": None if record is None else str(record),
        }
        assert self._mother.stdin is not None
        self._mother.stdin.write(json.dumps(request) + "\n")
        self._mother.stdin.flush()
        return Done(**json.loads(self._answer()))

    def _answer(self) -> str:
        assert self._mother.stdout is not None
        return self._mother.stdout.readline()

    def close(self) -> None:
        self._mother.communicate(timeout=30)
