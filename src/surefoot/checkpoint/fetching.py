"""Fetching: downloads the newest whole checkpoint of a mirror, and the run it belongs to, to an empty folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from surefoot.checkpoint.entries import INSIDE, MARKER, RUN, RUN_FILES, WEIGHTS, Entry, entries_in, files_of, missing_in
from surefoot.checkpoint.files import Fingerprint, fingerprint, sync_folder
from surefoot.checkpoint.names import numbers_of
from surefoot.checkpoint.remote import Remote
from surefoot.errors import CheckpointError
from surefoot.plain_files import PRIVATE
from surefoot.records.run import read_run, write_run


def fetch(remote: Remote, into: Path) -> dict[str, object]:
    """Fills a new folder with a run: its newest checkpoint that verifies, and the files copied with it.

    Skips damaged checkpoints and lists them in `rejected`. A finished run includes its weights and final log.
    In the result, `checkpoint` is None if the mirror holds no complete copy.
    """
    sizes = remote.sizes()
    entries = [each for each in entries_in(sizes) if f"{each.name}/{MARKER}" in sizes]
    rejected: list[tuple[str, str]] = []
    newest = _first_whole(remote, (each for each in entries if each.step is not None), into, sizes, rejected)
    finished = None
    if newest is not None:
        ends = (each for each in entries if each.step is None and each.start >= newest.start)
        finished = _first_whole(remote, ends, into.with_name(f"{into.name}-end"), sizes, rejected)
    if newest is not None:
        _fetch_best(remote, entries, into, sizes, rejected)
    if newest is not None and finished is None:
        _reopen(into)
    if finished is not None:
        _overlay(into.with_name(f"{into.name}-end"), into)
    elif newest is None and rejected:
        listed = "".join(f"\n  {name}: {reason}" for name, reason in rejected)
        raise CheckpointError(f"every checkpoint in {remote.url} is damaged:{listed}")
    return {"checkpoint": newest and newest.checkpoint, "finished": finished is not None, "rejected": rejected}


def _fetch_best(
    remote: Remote, entries: Iterable[Entry], run: Path, sizes: dict[str, int], rejected: list[tuple[str, str]]
) -> None:
    """Adds the checkpoint of the run's best step, if it has one."""
    best, beside = read_run(run).best_step, run.with_name(f"{run.name}-best")
    if not best or any(numbers_of(each.name)[0] == best for each in (run / "checkpoints").iterdir()):
        return
    found = _first_whole(remote, (each for each in entries if each.step == best), beside, sizes, rejected)
    if found is not None:
        os.replace(beside / "checkpoints" / found.checkpoint, run / "checkpoints" / found.checkpoint)
        sync_folder(run / "checkpoints")
        shutil.rmtree(beside)


def _first_whole(
    remote: Remote, entries: Iterable[Entry], into: Path, sizes: dict[str, int], rejected: list[tuple[str, str]]
) -> Entry | None:
    for entry in entries:
        shutil.rmtree(into, ignore_errors=True)
        try:
            _download(remote, entry, into, sizes)
            return entry
        except CheckpointError as error:
            rejected.append((entry.name, str(error)))
    shutil.rmtree(into, ignore_errors=True)
    return None


def _download(remote: Remote, entry: Entry, into: Path, sizes: dict[str, int]) -> None:
    files = files_of(remote.read(f"{entry.name}/{MARKER}"))
    if wrong := missing_in(entry, files, sizes) or _unfit(entry, files):
        raise CheckpointError(wrong)
    for name, expected in files.items():
        local = into / _place(entry, name)
        local.parent.mkdir(parents=True, exist_ok=True)
        remote.get(f"{entry.name}/{name}", local)
        if name in RUN_FILES:
            local.chmod(PRIVATE)
        _verify(local, name, expected)
    for folder in {(into / _place(entry, name)).parent for name in files}:
        sync_folder(folder)


def _unfit(entry: Entry, names: Iterable[str]) -> str | None:
    """Names a file that this kind of entry must have and lacks, or must not have. None if there is none."""
    needed = {RUN, "log.jsonl", *((f"{INSIDE}MANIFEST",) if entry.step is not None else (WEIGHTS,))}
    strange = {name for name in names if entry.step is None and name.startswith(INSIDE)}
    return next((f"{MARKER} does not name {name}" for name in sorted(needed - set(names))), None) or next(
        (f"{MARKER} names {name}, which does not belong to weights" for name in sorted(strange)), None
    )


def _place(entry: Entry, name: str) -> str:
    return f"checkpoints/{entry.checkpoint}/{name.removeprefix(INSIDE)}" if name.startswith(INSIDE) else name


def _verify(local: Path, name: str, expected: Fingerprint) -> None:
    if fingerprint(local) != expected:
        raise CheckpointError(f"{name} is damaged: its bytes do not match their hash")
    descriptor = os.open(local, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reopen(folder: Path) -> None:
    """Reopens a run that finished before its weights were copied: it must finish again."""
    run = read_run(folder)
    if run.status == "finished":
        write_run(replace(run, status="running"))


def _overlay(end: Path, run: Path) -> None:
    for path in end.iterdir():
        os.replace(path, run / path.name)
    shutil.rmtree(end)
