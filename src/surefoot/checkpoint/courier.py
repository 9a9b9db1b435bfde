"""Courier: the process that copies to a mirror. It takes orders as JSON lines and answers each with one.

It is a separate process with the lowest priority: sending bytes takes neither the interpreter nor a core from
training. It ends when its trainer ends, even if the trainer is killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from surefoot import errors
from surefoot.checkpoint.copying import Copier
from surefoot.checkpoint.fetching import fetch
from surefoot.checkpoint.remote import Remote
from surefoot.errors import SurefootError

PACKAGES = Path(__file__).parents[2]
"""The folder that surefoot was imported from. The process imports the same one."""


class Courier:
    """The trainer's side. Orders are executed one after another; each returns a future for its answer."""

    def __init__(self, url: str, folder: Path) -> None:
        paths = os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH"))))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, url, str(folder.absolute()), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self._waiting: deque[Future[Any]] = deque()
        self._lock = threading.Lock()
        self._ended = ""
        self._hearing = threading.Thread(target=self._hear, name="surefoot-mirror", daemon=True)
        self._hearing.start()

    @property
    def ended(self) -> bool:
        return bool(self._ended)

    def ask(self, order: str, **words: Any) -> Future[Any]:
        """Gives an order; never waits."""
        answer: Future[Any] = Future()
        assert self._process.stdin is not None
        with self._lock:
            if not self._ended:
                self._waiting.append(answer)
                with suppress(OSError):  # the process has died: the thread that reads its answers reports it
                    self._process.stdin.write(json.dumps({"order": order, **words}) + "\n")
                    self._process.stdin.flush()
                return answer
        answer.set_exception(OSError(self._ended))
        return answer

    def end(self) -> None:
        """Ends the process, even in the middle of a copy: an incomplete copy has no marker."""
        self._process.kill()
        self._hearing.join()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            _settle(self._waiting.popleft(), json.loads(line))
        self._process.wait()
        with self._lock:
            self._ended = f"the copying process ended with code {self._process.returncode}: {self._last_words()}"
            for each in (self._process.stdin, self._process.stdout, self._errors):
                with suppress(OSError):  # the pipe may still hold an order that it never read
                    each.close()  # type: ignore[union-attr]
        while self._waiting:
            self._waiting.popleft().set_exception(OSError(self._ended))

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-300:].decode(errors="replace").strip()


def _settle(waiting: Future[Any], answer: dict[str, Any]) -> None:
    if "failed" not in answer:
        waiting.set_result(answer["done"])
        return
    kind = getattr(errors, answer["kind"], OSError)
    waiting.set_exception(kind(answer["failed"]))


# ------------------------------------------------------------------------------------------- the process itself


class Orders:
    """The orders, by name."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder

    @cached_property
    def _copier(self) -> Copier:
        return Copier(Remote(self._url), self._folder)

    @cached_property
    def _yield_to_training(self) -> None:
        """Sets the lowest priority, from the first copy on. Before that, the trainer waits for the answers."""
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, 0, 19)

    def look(self) -> Any:
        return self._copier.look()

    def claim(self, **words: Any) -> Any:
        return self._copier.claim(**words)

    def copy(self, **words: Any) -> Any:
        _ = self._yield_to_training
        return self._copier.copy(**words)

    def finish(self, **words: Any) -> Any:
        return self._copier.finish(**words)

    def fetch(self, into: str) -> Any:
        return fetch(self._copier.remote, Path(into))


def carry_out(orders: Orders, line: str) -> dict[str, Any]:
    """Executes the order in a line. An error is returned as an answer, with the name of its class."""
    words = json.loads(line)
    try:
        return {"done": getattr(orders, words.pop("order"))(**words)}
    except Exception as error:
        kind = type(error).__name__ if isinstance(error, SurefootError) else "OSError"
        return {"failed": str(error) or repr(error), "kind": kind}


def end_with(parent: int) -> None:
    """Ends this process when its trainer is gone. A closed pipe does not show that: a data worker may keep it open."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


def hear(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def main() -> None:
    """Executes orders until the trainer is gone."""
    url, folder, parent = sys.argv[1:]
    for asked in (signal.SIGINT, signal.SIGTERM):  # they are for the trainer, which still needs a last copy
        signal.signal(asked, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output that libraries print is not an answer
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=hear, args=(lines,), daemon=True).start()
    threading.Thread(target=end_with, args=(int(parent),), daemon=True).start()
    orders = Orders(url, Path(folder))
    while True:
        print(json.dumps(carry_out(orders, lines.get())), file=answers, flush=True)


if __name__ == "__main__":
    main()
