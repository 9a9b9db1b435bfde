"""Mirror: copies a run to another place in the background, so that it can resume on an empty disk."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.checkpoint.courier import Courier
from surefoot.checkpoint.entries import RUN, RUN_FILES, WEIGHTS
from surefoot.checkpoint.files import sync_folder
from surefoot.checkpoint.lock import Owner
from surefoot.checkpoint.names import DRAFT, is_name, numbers_of
from surefoot.errors import RunError
from surefoot.plain_files import sync_file
from surefoot.records.codec import from_json, to_json
from surefoot.records.event import Event, append_event
from surefoot.records.run import RESTORED, Run

if TYPE_CHECKING:
    from typing_extensions import Self

START_SECONDS = 120.0
"""How long a mirror may take to list its contents, before the first step."""
FINISHED_SECONDS = 600.0
"""How long a finished run waits for its last copy."""
STOPPED_SECONDS = 25.0
"""How long a stopped or failed run waits for its last copy. Batch systems kill a job 30 s after SIGTERM."""

_PLACED = ("checkpoints", WEIGHTS, *(name for name in RUN_FILES if name != RUN))
"""The files that a restore puts into place first. run.json comes last, since it makes a folder a run."""
Differences = Callable[[Run], Iterable[str]]


class Mirror:
    """Copies a run to a URL. Without a URL, and on ranks other than 0, every method does nothing.

    Open it, `restore` an empty folder, `claim` the mirror for a run; then `take` each new checkpoint, and `end`.
    `take` never waits: if copies are slower than saves, the newest checkpoint is copied next.
    """

    def __init__(self, url: str | None, *, keep_last: int = 3, on: bool = True) -> None:
        self.url, self.keep_last = url if on else None, keep_last
        self._token, self._start, self._step = secrets.token_hex(8), 1, 0
        self._news = False
        self._changed = threading.Condition()
        self._copying: str | None = None
        self._next: str | None = None
        self._kept: list[str] = []
        self._copied: str | None = None
        self._failure, self._lost = "", False
        self._damaged: list[str] = []
        self._courier: Courier | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._courier is not None:
            self._courier.end()

    def open(self, folder: Path) -> None:
        """Connects before the first step. Raises if a package is missing or nothing answers."""
        if self.url is None:
            return
        self.folder = folder.absolute()
        self._courier = Courier(self.url, self.folder)
        try:
            self._there = self._courier.ask("look").result(START_SECONDS)
        except (OSError, TimeoutError) as error:
            said = f"no answer in {START_SECONDS:.0f} s" if isinstance(error, TimeoutError) else error
            raise RunError(
                f"cannot reach the mirror {self.url}: {said}\n"
                "check the URL, the credentials and the network, or train without it (mirror=none)"
            ) from error

    # ----------------------------------------------------------------------------------- before the first step

    def restore(self, differences: Differences, accept: Callable[[Path], object], *, allowed: bool = True) -> None:
        """Downloads the mirror's run, if it has one, to a folder without a run. Raises if that is not `allowed`.

        Also raises if the run has `differences` from the recipe, or if `accept` refuses its folder.
        """
        if self.url is None:
            return
        draft = self.folder / RESTORED
        if draft.exists() and not (self.folder / RUN).exists():
            _remove(*filter(_is_placed, (self.folder / name for name in _PLACED)))  # left by an interrupted restore
        _remove(draft)
        if (self.folder / RUN).exists() or not self._there["markers"]:
            return
        if not allowed:
            raise RunError(f"{self.url} already holds a run; name another mirror, or use --resume auto")
        self._refuse_others(differences)
        draft.mkdir()
        try:
            found = self._answer("fetch", into=str(draft / "run"))
            with _blaming(self.url, draft / "run"):
                accept(draft / "run")
        except BaseException:
            _remove(draft)
            raise
        for name in (*_PLACED, RUN):
            if (draft / "run" / name).exists():
                _put(draft / "run" / name, self.folder / name)
        sync_folder(self.folder)
        _remove(draft)
        self._step = numbers_of(found["checkpoint"])[0]
        self._there = {"step": self._step, "runs": [(self.folder / RUN).read_text(encoding="utf-8")]}
        self._damaged = [name for name, _ in found["rejected"]]
        for name, reason in found["rejected"]:
            self._tell("mirror-rejected", f"{name}: {reason}")
        self._tell("restored", f"{found['checkpoint']}, from {self.url}")

    def claim(self, run: Run, differences: Differences) -> Run:
        """Makes this trainer the one that copies to the mirror, unless the mirror holds another run or a newer state.

        An earlier owner notices this at its next copy. It stops copying and reports it.
        """
        if self.url is None:
            return run
        run = replace(run, id=run.id or secrets.token_hex(8))
        self._start, step, newest = run.starts, self._there["step"], _newest(self.folder)
        other = self._run_there()
        if step is None and other is not None and other.id != run.id:
            self._refuse_others(differences)
        elif step is not None and (other is None or other.id != run.id):
            raise RunError(
                f"{self.url} holds another run{f', of {other.recipe},' if other else ''} at step {step}\n"
                "name another mirror, or resume that run by naming an empty directory with --run"
            )
        local = numbers_of(newest)[0] if newest else 0
        if step is not None and step > local:
            raise RunError(
                f"{self.folder} has checkpoints up to step {local}, its mirror {self.url} up to step {step}: the run "
                "was trained further elsewhere, or checkpoints were deleted here\n"
                f"to resume from the mirror, remove {self.folder}; to resume from here, name another mirror"
            )
        owner = {"token": self._token, "run": run.id, "recipe": run.recipe, **asdict(Owner.current())}
        try:
            self._answer("claim", owner=owner, run=to_json(run), damaged=self._damaged)
        except OSError as error:
            raise RunError(f"cannot write to the mirror {self.url}: {error}") from error
        if newest is not None:
            self.take(newest, kept=_of_step(self.folder, run.best_step))
        return run

    def _refuse_others(self, differences: Differences) -> None:
        other = self._run_there()
        found = [] if other is None else list(differences(other))
        if found:
            raise RunError(
                f"{self.url} holds a run of another recipe: {'; '.join(found)}\n"
                "undo the change, name another mirror, or accept the change (--accept-change)"
            )

    def _run_there(self) -> Run | None:
        for text in self._there["runs"]:
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                return from_json(Run, text)
        return None

    # ----------------------------------------------------------------------------------- while it trains

    def take(self, checkpoint: str, kept: Sequence[str] = ()) -> None:
        """Copies a new, verified checkpoint in the background. Returns at once.

        The `kept` ones stay in the mirror, however old. They are copied first if they are not there.
        """
        if self.url is None:
            return
        with self._changed:
            self._next, self._kept, self._step = checkpoint, list(kept), numbers_of(checkpoint)[0]
            self._copy_next()

    def holds(self, checkpoint: str) -> bool:
        """Whether a checkpoint must not be removed yet, because it is being copied or comes next."""
        return checkpoint in (self._copying, self._next, *self._kept)

    def _copy_next(self) -> None:
        """Starts the next copy, if there is one and none is running. The caller holds the lock."""
        if self._copying is not None or self._next is None or self._lost:
            return
        assert self.url is not None
        assert self._courier is not None
        if self._courier.ended:  # it was killed: for example, memory was short
            self._courier = Courier(self.url, self.folder)
        self._copying, self._next = self._next, None
        words = {"token": self._token, "start": self._start, "keep_last": self.keep_last, "kept": self._kept}
        self._courier.ask("copy", checkpoint=self._copying, **words).add_done_callback(self._has_copied)

    def _has_copied(self, done: Future[Any]) -> None:
        """Called by the thread that reads the answers."""
        error = done.exception()
        with self._changed:
            copied, self._copying = self._copying, None
            if error is None:
                self._copied, self._failure, self._news = copied, "", self._news or done.result()
            else:
                self._failure, self._lost = str(error), isinstance(error, RunError)
            self._copy_next()
            self._changed.notify_all()
        if error is not None:
            kind = "mirror-lost" if self._lost else "mirror-failed"
            later = "surefoot copies nothing more" if self._lost else "it tries again with the next checkpoint"
            self._tell(kind, f"{copied} was not copied: {error}; {later}")

    # ----------------------------------------------------------------------------------- at the end

    def end(self, run: Run) -> None:
        """Waits a limited time for the last copy, then reports in one line what the mirror holds and what it lacks."""
        if self.url is None or self._courier is None:
            return
        until = time.monotonic() + (FINISHED_SECONDS if run.status == "finished" else STOPPED_SECONDS)
        newest, self._step = _newest(self.folder), run.steps
        whole = self._finish_copying(newest, until)
        weights = whole and run.status == "finished" and self._copy_weights(until)
        lacking = [
            *([f"the checkpoint {newest}"] if newest and not whole else []),
            *(["the weights"] if run.status == "finished" and not weights else []),
        ]
        if lacking:
            why = f": {self._failure}" if self._failure else ": the time was up"
            self._tell(
                "mirror-incomplete",
                f"{self.url} holds {self._copied or 'what it held before'}; not {' nor '.join(lacking)}{why}; "
                "run the same command to try again",
            )
        elif newest is not None and self._news:
            self._tell("mirrored", f"{self.url} holds {newest}{' and the weights' if weights else ''}")

    def _finish_copying(self, newest: str | None, until: float) -> bool:
        """Whether the newest checkpoint was copied in time. A failed copy is tried once more."""
        with self._changed:
            for _ in range(2):
                if newest is not None and self._copied != newest and self._copying != newest:
                    self._next = newest
                    self._copy_next()
                self._changed.wait_for(lambda: self._copying is None, timeout=max(0.0, until - time.monotonic()))
                if self._copied == newest or self._copying is not None or self._lost:
                    break
            return newest is not None and self._copied == newest

    def _copy_weights(self, until: float) -> bool:
        assert self._courier is not None
        copying = self._courier.ask("finish", token=self._token, start=self._start)
        try:
            self._news |= copying.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            return False
        except Exception as error:
            self._failure = str(error)
            return False
        return True

    def _answer(self, order: str, **words: Any) -> Any:
        assert self._courier is not None
        return self._courier.ask(order, **words).result()

    def _tell(self, kind: str, text: str) -> None:
        """Writes an event. A disk error does not stop the run."""
        with suppress(OSError):
            now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
            append_event(self.folder / "events.jsonl", Event(self._step, kind, text, now))


@contextmanager
def _blaming(url: str, draft: Path) -> Iterator[None]:
    """Replaces the draft folder in an error message by the URL of the mirror."""
    try:
        yield
    except RunError as error:
        raise RunError(str(error).replace(str(draft), url)) from error


def _names(folder: Path) -> list[str]:
    checkpoints = folder / "checkpoints"
    found = checkpoints.iterdir() if checkpoints.exists() else ()
    return [path.name for path in found if is_name(path.name) and not path.is_symlink()]


def _newest(folder: Path) -> str | None:
    """The newest checkpoint of a run, by its name."""
    return max(_names(folder), key=numbers_of, default=None)


def _of_step(folder: Path, step: int) -> list[str]:
    """The checkpoints of one step, if there are any."""
    return [name for name in _names(folder) if step and numbers_of(name)[0] == step]


def _is_placed(path: Path) -> bool:
    """Whether a restore made it. The link to checkpoints on another disk was there before."""
    return not (path.name == "checkpoints" and path.is_symlink())


def _put(path: Path, place: Path) -> None:
    """Moves a file or folder to its place. Checkpoints whose place is on another disk are copied there, one by one."""
    if _is_placed(place):
        os.replace(path, place)
        return
    for checkpoint in path.iterdir():
        draft = place / f"{DRAFT}{checkpoint.name}-{secrets.token_hex(4)}"
        shutil.copytree(checkpoint, draft, symlinks=True)
        for file in draft.iterdir():
            sync_file(file)
        sync_folder(draft)
        _remove(place / checkpoint.name)  # left by an interrupted restore
        os.replace(draft, place / checkpoint.name)
    sync_folder(place)


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
