"""Entries: the folders of a mirror, one per checkpoint. An entry is whole if its marker exists and agrees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import xxhash

from surefoot.checkpoint.files import Fingerprint
from surefoot.errors import CheckpointError

MARKER = "COMPLETE"
"""The file that is written last. It lists, as JSON, every file of the entry with size and hash. Its first line is a
hash of that list."""
OWNER = "OWNER"
"""The file that names the one trainer that copies to this mirror."""
RUN = "run.json"
RUN_FILES = ("log.jsonl", "layers.jsonl", "events.jsonl", "findings.json", "plan.json", "recipe.py", RUN)
"""The files of a run that are copied with each checkpoint. The log comes before run.json, which counts its attempts."""
WEIGHTS = "model.safetensors"
INSIDE = "checkpoint/"
_CHECKPOINT_FILE = re.compile(r"MANIFEST|state\.json|\.metadata|__\d+_\d+\.distcp")
_ENTRY = re.compile(r"(?:step-(?P<step>\d{1,18})(?:-(?P<take>\d{1,9}))?|finished)\.(?P<start>\d{1,9})-[0-9a-f]{8}")


@dataclass(frozen=True)
class Entry:
    """A folder of the mirror: `step-000000040.2-5f1c9e02`, copied by the run's second start, or `finished.2-...`."""

    name: str
    step: int | None
    take: int
    start: int

    @property
    def checkpoint(self) -> str:
        """The name of the local folder of this checkpoint."""
        return self.name.partition(".")[0]

    @property
    def order(self) -> tuple[int, int, int]:
        """A sort key: later entries are greater. It uses no clock."""
        return self.step or 0, self.start, self.take


def entry_named(name: str) -> Entry | None:
    """Parses a folder's name. None if it is not an entry."""
    found = _ENTRY.fullmatch(name)
    if found is None:
        return None
    step = None if found["step"] is None else int(found["step"])
    return Entry(name, step, int(found["take"] or 1), int(found["start"]))


def entries_in(sizes: Mapping[str, int]) -> list[Entry]:
    """Every entry that has files, whole or not, newest first."""
    names = {name.partition("/")[0] for name in sizes if "/" in name}
    return sorted(filter(None, map(entry_named, names)), key=lambda entry: entry.order, reverse=True)


def marker_of(files: Mapping[str, Fingerprint]) -> bytes:
    """The marker of an entry that consists of these files."""
    body = (json.dumps({"format": 1, "files": {name: asdict(each) for name, each in files.items()}}) + "\n").encode()
    return _digest(body) + b"\n" + body


def files_of(marker: bytes | None) -> dict[str, Fingerprint]:
    """The files of an entry, read from its marker. Raises for file names that a run cannot have."""
    if marker is None:
        raise CheckpointError(f"{MARKER} is missing: the copy was not finished")
    digest, _, body = marker.partition(b"\n")
    if digest != _digest(body):
        raise CheckpointError(f"{MARKER} is damaged: it does not match its own hash")
    try:
        plain = json.loads(body)
        files = {name: Fingerprint(int(each["bytes"]), str(each["xxh3_128"])) for name, each in plain["files"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{MARKER} cannot be read: {error}") from error
    _refuse_strange(files)
    return files


def missing_in(entry: Entry, files: Mapping[str, Fingerprint], sizes: Mapping[str, int]) -> str | None:
    """Names a file that is missing or has the wrong size, or None."""
    for name, expected in files.items():
        size = sizes.get(f"{entry.name}/{name}")
        if size != expected.bytes:
            return f"{name} has {size} bytes instead of {expected.bytes}" if size is not None else f"{name} is missing"
    return None


def _refuse_strange(names: Iterable[str]) -> None:
    for name in names:
        inside = name.startswith(INSIDE) and _CHECKPOINT_FILE.fullmatch(name.removeprefix(INSIDE))
        if not (inside or name in RUN_FILES or name == WEIGHTS):
            raise CheckpointError(f"{MARKER} names {name[:80]!r}, which is not a file of a run")


def _digest(body: bytes) -> bytes:
    return xxhash.xxh3_128(body).hexdigest().encode()
