"""Asking: a command line of surefoot, run in a child of a process that has torch loaded, and what came of it.

A child is forked from a process that has imported everything and computed nothing, so a command that takes seconds to
start elsewhere takes milliseconds here. It has a session of its own, which is killed as a whole when its time is over.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FINE = (0, 1, 2, 74, 75)
"""Exit codes that surefoot documents. Any other, or a death by signal, counts as a traceback."""
MEMORY_BYTES = 12 << 30
SECRET = "not to be read or written\n"
CACHES = (".cache", ".triton", ".config")
USERS = "Your code raised this"
"""What surefoot says below a traceback that holds the user's lines alone."""
TRACE = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Place:
    """A temporary folder: `work` is where commands run, `home` their HOME, `outside` what none may touch."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "a" / "b" / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def secret(self) -> Path:
        """The one file outside."""
        return self.outside / "secret.txt"

    @property
    def canary(self) -> Path:
        """Whoever executes what it only had to read creates this file."""
        return self.root / "canary"

    def make(self) -> None:
        for folder in (self.work, self.home, self.outside, self.root / "tmp"):
            folder.mkdir(parents=True)
        self.secret.write_text(SECRET)

    def disturbed(self) -> str:
        """What was written outside of the folder where a command runs, or nothing; all is put back."""
        strange = [path for path in self.home.iterdir() if path.name not in CACHES]
        strange += [path for path in self.outside.iterdir() if path.name != "secret.txt"]
        overwritten = self.secret.is_symlink() or not self.secret.exists() or self.secret.read_text() != SECRET
        if not strange and not overwritten:
            return ""
        for path in strange:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.secret.unlink(missing_ok=True)
        self.secret.write_text(SECRET)
        return "a file outside was overwritten" if overwritten else f"{strange[0].name} was written outside"


@dataclass(frozen=True)
class Answer:
    """What a command printed and how it ended. `code` is None where it had to be killed."""

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str
    seconds: float
    executed: bool = False
    disturbed: str = ""
    made: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def hung(self) -> bool:
        return self.code is None

    @property
    def crashed(self) -> bool:
        """Ended by a signal, with a code that is not documented, or with a traceback of surefoot's own lines."""
        return not self.hung and (self.code not in FINE or (TRACE in self.text and USERS not in self.text))


def ask(place: Place, words: list[str], *, seconds: float, do: Callable[[], None] | None = None) -> Answer:
    """Runs `surefoot WORDS` in the work folder; with `do`, a function in its place."""
    place.canary.unlink(missing_ok=True)
    out, err = place.root / "out", place.root / "err"
    began, pid = time.monotonic(), os.fork()
    if pid == 0:
        _child(place, words, out, err, do)
    code = _ended(pid, began + seconds)
    return Answer(
        tuple(words),
        code,
        out.read_text(errors="replace"),
        err.read_text(errors="replace"),
        time.monotonic() - began,
        executed=place.canary.exists(),
        disturbed=place.disturbed(),
    )


def _child(place: Place, words: list[str], out: Path, err: Path, do: Callable[[], None] | None) -> None:
    """What a child does. It ends without unwinding into what its parent had begun."""
    code = 1
    try:
        os.setsid()
        for descriptor, path in ((0, Path(os.devnull)), (1, out), (2, err)):
            flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(path, flags), descriptor)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.chdir(place.work)
        os.environ.update(HOME=str(place.home), TMPDIR=str(place.root / "tmp"), COLUMNS="250", TERM="dumb")
        sys.argv = ["surefoot", *words]
        if do is None:
            from surefoot.cli.main import main as do
        do()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else (0 if error.code is None else 1)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _ended(pid: int, deadline: float) -> int | None:
    wait = 0.002
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            _kill_session(pid)
            return os.waitstatus_to_exitcode(status)
        time.sleep(wait)
        wait = min(2 * wait, 0.02)
    _kill_session(pid)
    os.waitpid(pid, 0)
    return None


def _kill_session(leader: int) -> None:
    """The child and what it has started; it is the leader of a group of its own."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
