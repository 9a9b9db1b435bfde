"""Runs of a script in processes of their own: forks of one that has torch loaded, several at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import NamedTuple

from surefoot.debug.probe.order import ANSWER, Change, Order, Ran
from surefoot.records.codec import read_record, to_json

Copied = tuple[tuple[Change, Ran], ...]
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"
}  # fmt: skip


class Answer(NamedTuple):
    """What a run showed, and what the copies of its last evaluation did."""

    ran: Ran
    copies: Copied = ()


class Runs:
    """Gives orders to processes, as many at once as there are."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder, self._jobs = folder, jobs
        self._servers: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._started: list[subprocess.Popen[str]] = []
        self._pool = ThreadPoolExecutor(jobs)
        self.count, self.copies = 0, 0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Runs:
        command = [sys.executable, "-m", "surefoot.debug.probe.rerun"]
        pipe = subprocess.PIPE
        for _ in range(self._jobs):
            server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **_ONE_THREAD})
            self._started.append(server)
            self._servers.put(server)
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        for server in self._started if kind is not None else ():
            server.kill()
        self._pool.shutdown(cancel_futures=True)
        for server in self._started:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.close()
            server.wait()
            server.stdout.close()

    def start(self, order: Order) -> Future[Answer]:
        """Gives an order; the answer comes later."""
        return self._pool.submit(self._run, order)

    def _run(self, order: Order) -> Answer:
        folder = self._folder / order.name.replace(" ", "-")
        folder.mkdir()
        file = folder / "order.json"
        file.write_text(to_json(replace(order, folder=str(folder))), encoding="utf-8")
        with self._server() as server:
            assert server.stdin is not None
            assert server.stdout is not None
            with suppress(BrokenPipeError):  # it was killed, and the answer says so
                server.stdin.write(f"{file}\n")
                server.stdin.flush()
            code = server.stdout.readline().strip()
        answer = _read(folder, order, code)
        self.count += 1
        self.copies += len(answer.copies)
        self.cpu_seconds += answer.ran.cpu_seconds
        return answer

    @contextmanager
    def _server(self) -> Iterator[subprocess.Popen[str]]:
        server = self._servers.get()
        try:
            yield server
        finally:
            self._servers.put(server)


@contextmanager
def runs(jobs: int) -> Iterator[Runs]:
    """Processes for runs, and a folder for what they write, which is removed afterwards."""
    with TemporaryDirectory(prefix="surefoot-probe-") as folder, Runs(Path(folder), jobs) as started:
        yield started


def _read(folder: Path, order: Order, code: str) -> Answer:
    if not (folder / ANSWER).exists():
        said = (folder / "said.txt").read_text(errors="replace").strip().splitlines() if code else []
        return Answer(Ran(order.name, error=f"its process ended with {code or 'no'} exit code{_last(said)}"))
    found = []
    for number, change in enumerate(order.copies):
        file = folder / f"copy-{number}.json"
        if file.exists():
            found.append((change, read_record(Ran, file)))
    return Answer(read_record(Ran, folder / ANSWER), tuple(found))


def _last(said: Sequence[str]) -> str:
    return f": {said[-1]}" if said else ""
