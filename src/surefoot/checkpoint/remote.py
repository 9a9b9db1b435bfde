"""Remote: the files under one URL, on any store that fsspec supports. Only this module imports fsspec."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from surefoot.errors import MissingPackage, RunError, installing

OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "memory"}
"""Stores without folders. `makedirs` would create a bucket there, even for a mistyped name."""
ATTEMPTS = 3
"""Attempts that botocore makes, with its own backoff. s3fs repeats them when a connection breaks. It gives each
connection 5 s to open and 15 s to answer."""


class Remote:
    """Reads and writes files by names relative to a URL. Errors are OSErrors that name the URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        with self._named():
            self._fs, self._root = _file_system(url)

    def sizes(self) -> dict[str, int]:
        """Every file and its size in bytes."""
        with self._named():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
        first = len(self._fs._strip_protocol(self._root).rstrip("/")) + 1
        return {path[first:]: int(about["size"]) for path, about in found.items()}

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None if there is no such file."""
        with self._named():
            try:
                content: bytes = self._fs.cat_file(self._path(name))
            except FileNotFoundError:
                return None
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._named():
            self._make_room(name)
            self._fs.pipe_file(self._path(name), content)

    def put(self, local: Path, name: str) -> None:
        with self._named():
            self._make_room(name)
            self._fs.put_file(str(local), self._path(name))

    def get(self, name: str, local: Path) -> None:
        with self._named():
            self._fs.get_file(self._path(name), str(local))

    def remove(self, names: Iterable[str]) -> None:
        """Removes files in this order. A missing file is no error."""
        with self._named():
            for name in names:
                with suppress(FileNotFoundError):
                    self._fs.rm_file(self._path(name))

    def tidy(self, folder: str) -> None:
        """Removes an empty folder, if the store has folders."""
        if not self._stores_objects():
            with suppress(OSError):
                self._fs.rmdir(self._path(folder))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_room(self, name: str) -> None:
        if not self._stores_objects():
            self._fs.makedirs(os.path.dirname(self._path(name)), exist_ok=True)

    def _stores_objects(self) -> bool:
        protocol = self._fs.protocol
        return bool(OBJECT_STORES & {protocol} if isinstance(protocol, str) else OBJECT_STORES & set(protocol))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turns errors of libraries, which have many classes and sometimes no text, into an OSError."""
        try:
            yield
        except (MissingPackage, RunError):
            raise
        except Exception as error:
            raise OSError(f"{self.url}: {_one_line(error)}") from error


def _file_system(url: str) -> tuple[Any, str]:
    is_s3 = urlsplit(url).scheme in ("s3", "s3a")
    needed = ["fsspec", "s3fs"] if is_s3 else ["fsspec"]
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingPackage(f"mirror={url} needs fsspec: {installing('remote', *needed)} ({error})") from error
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if is_s3:
        options["config_kwargs"] = {"retries": {"mode": "standard", "max_attempts": ATTEMPTS}}
    try:
        fs, root = url_to_fs(url, **options)
    except ImportError as error:
        raise MissingPackage(f"mirror={url} needs a package that is not installed: {error}") from error
    except ValueError as error:
        raise RunError(f"mirror={url} is not a URL that fsspec knows: {error}") from error
    return fs, root.rstrip("/")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."
