"""The manifest: every file of a checkpoint with its size and hash, under a hash of its own."""

import json
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

from surefoot.checkpoint.files import Fingerprint, fingerprint, write_new
from surefoot.errors import CheckpointError
from surefoot.plain_files import inside, read_plain

NAME = "MANIFEST"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """The files of a checkpoint, its step, its ranks and its torch version."""

    step: int
    ranks: int
    torch_version: str
    files: Mapping[str, Fingerprint]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest. The first line is a hash of all bytes after it, so a changed bit is always noticed."""
    body = (json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n").encode()
    write_new(folder / NAME, _digest(body) + b"\n" + body)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint. Raises if it is missing or damaged."""
    try:
        digest, _, body = read_plain(folder / NAME).partition(b"\n")
    except FileNotFoundError:
        raise CheckpointError(f"{NAME} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{NAME} cannot be read: {error.strerror}") from error
    if digest != _digest(body):
        raise CheckpointError(f"{NAME} is damaged: it does not match its own hash")
    return _parsed(body)


def _parsed(body: bytes) -> Manifest:
    try:
        plain = json.loads(body)
        if plain.pop("format") != FORMAT:
            raise CheckpointError(f"{NAME} does not have format {FORMAT}; a newer surefoot wrote it")
        files = {name: Fingerprint(**each) for name, each in plain.pop("files").items()}
        return Manifest(files=files, **plain)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{NAME} is not a manifest: {error}") from error


def damage(folder: Path, name: str, expected: Fingerprint) -> str | None:
    """Describes the damage of a file, or None. Compares the size before it reads the bytes."""
    try:
        path = inside(folder, name)
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size != expected.bytes:
            return f"{name} has {found.st_size} bytes instead of {expected.bytes}"
        if fingerprint(path) != expected:
            return f"{name} is damaged: its bytes do not match their hash"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    return None


def _digest(body: bytes) -> bytes:
    return xxhash.xxh3_128(body).hexdigest().encode()
