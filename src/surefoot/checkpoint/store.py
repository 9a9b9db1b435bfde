"""Checkpoints: the saved states of one run. Each one is either complete or does not exist."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from surefoot.checkpoint.checkpoint import STATE, Checkpoint
from surefoot.checkpoint.files import Fingerprint, sync_folder, write_new
from surefoot.checkpoint.lock import Lock
from surefoot.checkpoint.manifest import Manifest, write_manifest
from surefoot.checkpoint.mirror import Mirror
from surefoot.checkpoint.names import DRAFT, is_name, name_of, numbers_of
from surefoot.checkpoint.outline import take_apart, to_json
from surefoot.checkpoint.ranks import Ranks
from surefoot.checkpoint.staging import Staging
from surefoot.checkpoint.writer import write_tensors
from surefoot.errors import CheckpointError, DiskError
from surefoot.plain_files import refusals_of


class Checkpoints:
    """The checkpoints in a folder. Every rank creates one and makes the same calls.

    Saving takes the folder's lock, from the first save until `close` or the end of the process.
    A `mirror` copies each checkpoint that was verified. A checkpoint that is being copied is not removed.
    """

    def __init__(
        self, folder: Path, *, keep_last: int = 3, asynchronous: bool = True, mirror: Mirror | None = None
    ) -> None:
        if keep_last < 1:
            raise CheckpointError(f"keep_last is {keep_last}; set it to 1 or more")
        self.folder, self.keep_last, self.asynchronous = Path(folder), keep_last, asynchronous
        self.rejected: list[tuple[Path, str]] = []
        self._mirror = mirror or Mirror(None)
        self._ranks, self._lock, self._staging = Ranks(), Lock(self.folder), Staging()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="surefoot-checkpoint")
        self._under_way: Future[None] | None = None
        self._claimed = False
        self.keep: set[int] = set()
        """Steps whose checkpoints stay, however old."""
        self.published = 0
        """The newest step that this object has saved; its checkpoint is whole and was read back."""
        self._verified: dict[Path, Any] = {}

    def __iter__(self) -> Iterator[Checkpoint]:
        """Every checkpoint, verified or not, newest step first. The order comes from the names, not from clocks."""
        names = self._ranks.from_first(self._names)
        return (Checkpoint(self.folder / name, self._ranks) for name in names)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that verifies. None if there are no checkpoints.

        Skips damaged ones and lists them in `rejected`. Raises if all are damaged.
        """
        self.rejected = []
        for checkpoint in self:
            if (reason := _damage(checkpoint)) is None:
                return checkpoint
            self.rejected.append((checkpoint.path, reason))
        if self.rejected:
            listed = "".join(f"\n  {path.name}: {reason}" for path, reason in self.rejected)
            raise CheckpointError(f"every checkpoint in {self.folder} is damaged:{listed}")
        return None

    def claim(self) -> None:
        """Takes the folder's lock, or raises a `RunError` that names the holder. Then removes drafts of dead processes.

        `save` does this too. A trainer calls it before its first step.
        """
        if not self._claimed:
            self._ranks.from_first(self._claim)
            self._claimed = True

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Saves a state: nested dicts, lists and tuples of tensors, numbers, strings and None.

        An asynchronous save returns when the state is copied. It waits for an earlier save that is still running.
        If the earlier one failed, this save starts anyway, and then the failure is raised.
        """
        self._claim_or_fail(step)
        failure = self._finish()
        outline, tensors = take_apart(state)
        text = to_json(outline)
        if self.asynchronous:
            staged = self._staging.copy(tensors)
            self._under_way = self._thread.submit(self._publish, step, text, staged)
        else:
            self._publish(step, text, tensors)
        if failure is not None:
            raise failure

    def wait(self) -> None:
        """Waits for the running save. Raises a `CheckpointError` if it failed."""
        if failure := self._finish():
            raise failure

    def close(self) -> None:
        """Waits for the running save, and releases the lock."""
        try:
            self.wait()
        finally:
            self._lock.release()
            self._claimed = False

    def _claim_or_fail(self, step: int) -> None:
        try:
            self.claim()
        except DiskError as error:
            raise CheckpointError(f"step {step} was not saved: {error}") from error

    def _claim(self) -> None:
        self._lock.acquire()
        with refusals_of(self.folder):
            sync_folder(self.folder.parent)
        for leftover in self.folder.glob(f"{DRAFT}*"):
            _delete(leftover)

    def _finish(self) -> CheckpointError | None:
        failure = self._under_way.exception() if self._under_way is not None else None
        self._under_way = None
        if failure is not None and not isinstance(failure, CheckpointError):
            raise failure
        return failure

    def _publish(self, step: int, text: str, tensors: dict[str, torch.Tensor]) -> None:
        """Writes into a draft folder, then renames it. The checkpoint appears at that moment."""
        draft = self._ranks.from_first(lambda: self.folder / f"{DRAFT}{name_of(step, 1)}-{secrets.token_hex(4)}")
        try:
            self._ranks.from_first(draft.mkdir)
            write_tensors(draft, tensors, self._ranks, lambda files: self._complete(draft, step, text, files))
        except BaseException as error:
            if self._ranks.rank == 0:
                shutil.rmtree(draft, ignore_errors=True)
            if not isinstance(error, Exception):
                raise
            raise CheckpointError(f"step {step} was not saved: {error}; older checkpoints are unchanged") from error
        try:
            self._retain(step)
        except OSError as error:
            raise CheckpointError(f"step {step} was saved, but could not be read back: {error}") from error
        self.published = max(self.published, step)
        names = self._names()
        kept = [name for name in names if numbers_of(name)[0] in self.keep - {step}]
        self._mirror.take(next(name for name in names if numbers_of(name)[0] == step), kept=kept)

    def _complete(self, draft: Path, step: int, text: str, files: dict[str, Fingerprint]) -> None:
        state = write_new(draft / STATE, text.encode())
        manifest = Manifest(step, self._ranks.size, torch.__version__, {**files, STATE: state})
        write_manifest(draft, manifest)
        sync_folder(draft)
        takes = [numbers_of(name)[1] for name in self._names() if numbers_of(name)[0] == step]
        os.rename(draft, self.folder / name_of(step, max(takes, default=0) + 1))
        sync_folder(self.folder)

    def _names(self) -> list[str]:
        """The names of all checkpoints, the newest first."""
        if not self.folder.exists():
            return []
        names = [path.name for path in self.folder.iterdir() if is_name(path.name)]
        return sorted(names, key=numbers_of, reverse=True)

    def _retain(self, saved: int) -> None:
        """Removes checkpoints older than the `keep_last` newest that verify. Damaged ones do not count.

        The checkpoint just saved is read back here. It is kept even if newer ones remain from before a rewind.
        """
        kept: set[int] = set()
        for checkpoint in self:
            named = checkpoint.step == saved or checkpoint.step in self.keep
            if checkpoint.step in kept or (len(kept) >= self.keep_last and not named):
                self._ranks.from_first(partial(self._remove, checkpoint.path))
            elif (reason := self._new_damage(checkpoint)) is None:
                kept.add(checkpoint.step)
            elif checkpoint.step == saved:
                raise CheckpointError(f"step {saved} was saved, but reads back damaged: {reason}")

    def _remove(self, path: Path) -> None:
        """Removes a checkpoint. One that is being copied is removed after a later save."""
        if not self._mirror.holds(path.name):
            _remove(path)

    def _new_damage(self, checkpoint: Checkpoint) -> str | None:
        """Describes the damage, or None. A verified checkpoint is not read again while its files are unmodified."""
        stamp = self._ranks.from_first(lambda: _stamp(checkpoint.path))
        if self._verified.get(checkpoint.path) == stamp:
            return None
        reason = _damage(checkpoint)
        if reason is None:
            self._verified[checkpoint.path] = stamp
        return reason


def _damage(checkpoint: Checkpoint) -> str | None:
    try:
        checkpoint.verify()
    except CheckpointError as error:
        return str(error)
    return None


def _stamp(folder: Path) -> list[tuple[str, int, int, int]]:
    """A stamp that changes when a file is written to, even if its modification time is set back."""
    try:
        entries = [(entry.name, entry.stat()) for entry in os.scandir(folder)]
    except OSError:
        return []
    return sorted((name, stat.st_ino, stat.st_size, stat.st_ctime_ns) for name, stat in entries)


def _remove(path: Path) -> None:
    """Renames the folder before it is deleted: an interrupted removal must not look like a damaged checkpoint."""
    hidden = path.with_name(f"{DRAFT}{path.name}-{secrets.token_hex(4)}")
    with suppress(OSError):
        path.rename(hidden)
        _delete(hidden)


def _delete(path: Path) -> None:
    """Deletes a folder, or the link or file in its place. What a link leads to stays."""
    with suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)
