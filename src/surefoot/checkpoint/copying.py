"""Copying: copies one checkpoint, or a finished run, to a mirror, and keeps the last few there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import xxhash

from surefoot.checkpoint.entries import (
    INSIDE,
    MARKER,
    OWNER,
    RUN,
    RUN_FILES,
    WEIGHTS,
    Entry,
    entries_in,
    entry_named,
    files_of,
    marker_of,
    missing_in,
)
from surefoot.checkpoint.files import Fingerprint, fingerprint
from surefoot.checkpoint.manifest import NAME as MANIFEST
from surefoot.checkpoint.manifest import read_manifest
from surefoot.checkpoint.names import numbers_of
from surefoot.checkpoint.remote import Remote
from surefoot.errors import CheckpointError, RunError


class Copier:
    """Copies the run in a folder. Each copy has its own folder, so no checkpoint file is ever overwritten."""

    def __init__(self, remote: Remote, folder: Path) -> None:
        self.remote, self.folder = remote, folder
        self._whole: dict[str, dict[str, Fingerprint]] = {}

    def look(self) -> dict[str, Any]:
        """Lists the mirror: copies of run.json, the number of markers, and the newest step with correct file sizes."""
        sizes = self.remote.sizes()
        newest = next((each for each in entries_in(sizes) if each.step is not None and self._files(each, sizes)), None)
        copies = [RUN, *([] if newest is None else [f"{newest.name}/{RUN}"])]
        runs = [content.decode(errors="replace") for content in map(self.remote.read, copies) if content is not None]
        markers = sum(name.endswith(f"/{MARKER}") for name in sizes)
        return {"step": newest and newest.step, "markers": markers, "runs": runs}

    def claim(self, owner: dict[str, Any], run: str, damaged: Sequence[str]) -> None:
        """Makes `owner` the only process that copies to this mirror. Removes entries that were found damaged."""
        self.remote.write(RUN, run.encode())
        self.remote.write(OWNER, (json.dumps(owner, indent=1) + "\n").encode())
        if damaged:
            self._remove(filter(None, map(entry_named, damaged)), self.remote.sizes())

    def copy(self, checkpoint: str, token: str, start: int, keep_last: int, kept: Sequence[str] = ()) -> bool:
        """Copies a checkpoint to the mirror, with the log and everything that a resume needs. The marker comes last.

        The `kept` checkpoints are copied first, and stay. Returns False if this one is already there.
        """
        for each in kept:
            self._copy(each, token, start)
        entry = self._copy(checkpoint, token, start)
        if entry is None:
            return False
        self._refuse_other_owners(token)
        self._retain(entry, keep_last, {numbers_of(name)[0] for name in kept})
        return True

    def _copy(self, checkpoint: str, token: str, start: int) -> Entry | None:
        """Copies one checkpoint. Returns its new entry, or None if it is already there."""
        self._refuse_other_owners(token)
        local, sizes = self.folder / "checkpoints" / checkpoint, self.remote.sizes()
        digest = fingerprint(local / MANIFEST)
        standing = (each for each in entries_in(sizes) if each.checkpoint == checkpoint)
        if any(self._files(each, sizes).get(INSIDE + MANIFEST) == digest for each in standing):
            return None
        files = {INSIDE + name: each for name, each in read_manifest(local).files.items()} | {INSIDE + MANIFEST: digest}
        entry = _new_entry(checkpoint, start)
        self._publish(entry, {name: local / name.removeprefix(INSIDE) for name in files}, files)
        return entry

    def finish(self, token: str, start: int) -> bool:
        """Copies the weights and the final log of a finished run to the mirror. False if they are already there."""
        self._refuse_other_owners(token)
        sizes, run = self.remote.sizes(), fingerprint(self.folder / RUN)
        older = [each for each in entries_in(sizes) if each.step is None]
        if any(self._files(each, sizes).get(RUN) == run for each in older):
            return False
        weights = self.folder / WEIGHTS
        entry = _new_entry("finished", start)
        self._publish(entry, {WEIGHTS: weights}, {WEIGHTS: fingerprint(weights)})
        self._remove(older, self.remote.sizes())
        return True

    def _publish(self, entry: Entry, local: Mapping[str, Path], files: Mapping[str, Fingerprint]) -> None:
        for name, path in local.items():
            self.remote.put(path, f"{entry.name}/{name}")
        everything = {**files, **self._copy_run_files(entry)}
        if lacking := missing_in(entry, everything, self.remote.sizes()):
            raise CheckpointError(f"{entry.name} at {self.remote.url} is incomplete: {lacking}")
        self.remote.write(f"{entry.name}/{MARKER}", marker_of(everything))
        self._whole[entry.name] = everything

    def _copy_run_files(self, entry: Entry) -> dict[str, Fingerprint]:
        """Copies the small files of a run. Files that may be growing are copied up to their last whole line."""
        copied = {}
        for name in RUN_FILES:
            path = self.folder / name
            if path.exists():
                content = path.read_bytes()
                content = content[: content.rfind(b"\n") + 1] if name.endswith(".jsonl") else content
                self.remote.write(f"{entry.name}/{name}", content)
                copied[name] = Fingerprint(len(content), xxhash.xxh3_128(content).hexdigest())
        return copied

    def _refuse_other_owners(self, token: str) -> None:
        """Raises if another process owns the mirror. Stores have no locks: another may come before the next write."""
        content = self.remote.read(OWNER)
        try:
            owner = json.loads(content or b"{}")
            if owner.get("token") == token:
                return
            who = f"process {owner['pid']} on {owner['host']}, since {owner['since']}"
        except (ValueError, KeyError, TypeError, AttributeError):
            who = f"another process: {OWNER} is missing or unreadable"
        raise RunError(f"{self.remote.url} was taken over by {who}")

    def _retain(self, new: Entry, keep_last: int, named: set[int]) -> None:
        """Removes all but the `keep_last` newest whole checkpoints and the named ones, and remains of copies."""
        sizes = self.remote.sizes()
        kept: set[int | None] = {new.step}
        extra = []
        for entry in (each for each in entries_in(sizes) if each.step is not None and each != new):
            stays = len(kept) < keep_last or entry.step in named
            if entry.step not in kept and stays and self._files(entry, sizes):
                kept.add(entry.step)
            else:
                extra.append(entry)
        self._remove(extra, sizes)

    def _remove(self, entries: Iterable[Entry], sizes: Mapping[str, int]) -> None:
        """Removes entries, each with its marker first: a partly removed entry must not look whole."""
        for entry in entries:
            names = [name for name in sizes if name.startswith(f"{entry.name}/")]
            marker = f"{entry.name}/{MARKER}"
            self.remote.remove([marker, *(name for name in names if name != marker)])
            self.remote.tidy(f"{entry.name}/{INSIDE}")
            self.remote.tidy(entry.name)

    def _files(self, entry: Entry, sizes: Mapping[str, int]) -> dict[str, Fingerprint]:
        """The files of an entry. Empty if its marker is missing or damaged, or a file has the wrong size."""
        if f"{entry.name}/{MARKER}" not in sizes:
            return {}
        try:
            files = self._whole.get(entry.name) or files_of(self.remote.read(f"{entry.name}/{MARKER}"))
        except CheckpointError:
            return {}
        self._whole[entry.name] = files
        return {} if missing_in(entry, files, sizes) else files


def _new_entry(checkpoint: str, start: int) -> Entry:
    entry = entry_named(f"{checkpoint}.{start}-{secrets.token_hex(4)}")
    assert entry is not None, checkpoint
    return entry
