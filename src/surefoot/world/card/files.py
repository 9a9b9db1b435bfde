"""Files of a planned script: it reads what is there, and what it writes goes to a folder of its own.

Checkpoints with tensors of the card stay in memory. Nothing leaves the machine. Each is noted with its line.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch

from surefoot.torch_inside.card import replaced
from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.user_line import where

if TYPE_CHECKING:
    from surefoot.world.card.placement import Placement

_WRITES = set("wax+")
_QUIET = {
    "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRACKIO_MODE": "disabled",
    "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug", "MLFLOW_TRACKING_URI": "", "CLEARML_OFFLINE_MODE": "1",
    "HF_DEACTIVATE_ASYNC_LOAD": "1",  # threads of a loader are not seen by the books
}  # fmt: skip


class Held:
    """What a script would have written, and where it went instead: to a folder that lies among temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: dict[str, int] = {}
        self.checkpoints: dict[Any, Any] = {}
        self._gone: set[str] = set()
        """Paths that the script removed. They are there, and it finds them no longer."""
        self._free = tuple(os.path.realpath(each) + os.sep for each in (folder.parent, "/dev", "/proc"))
        self._looking = threading.local()

    def note(self, what: str) -> None:
        """Counts something that did not happen."""
        self.notes[what] = self.notes.get(what, 0) + 1

    @contextmanager
    def plainly(self) -> Iterator[None]:
        """A context in which this thread uses files as they are."""
        before, self._looking.on = getattr(self._looking, "on", False), True
        try:
            yield
        finally:
            self._looking.on = before

    def elsewhere(self, path: Any) -> str | None:
        """Where a path of the script's lies instead; None for what may be written."""
        if isinstance(path, int) or getattr(self._looking, "on", False):
            return None
        with self.plainly():
            full = os.path.abspath(os.fsdecode(path))
            if (os.path.realpath(full) + os.sep).startswith((*self._free, str(self.folder) + os.sep)):
                return None
            return str(self.folder / full.lstrip(os.sep))

    def has(self, other: str | None) -> bool:
        """Has the script written there?"""
        with self.plainly():
            return other is not None and os.path.lexists(other)

    def is_gone(self, path: Any) -> bool:
        """Has the script removed what is there, or a folder around it?"""
        if not self._gone or isinstance(path, int):
            return False
        full = Path(os.path.abspath(os.fsdecode(path)))
        return any(str(each) in self._gone for each in (full, *full.parents))

    def read_from(self, path: Any) -> Any:
        """A path to read: the script's own version, if it wrote one or removed what was there."""
        other = self.elsewhere(path)
        return other if other is not None and (self.has(other) or self.is_gone(path)) else path

    def removed(self, path: Any) -> None:
        """Notes that the script removes a file or a folder."""
        self._gone.add(os.path.abspath(os.fsdecode(path)))
        self.note(f"removing {os.path.basename(os.fsdecode(path))}{where()}")

    def write_to(self, path: Any, *, keep: bool) -> Any:
        """A path to write to. With `keep`, it begins with what is there."""
        other = self.elsewhere(path)
        if other is None:
            return path
        with self.plainly():
            os.makedirs(os.path.dirname(other), exist_ok=True)
            if keep and not os.path.lexists(other) and os.path.lexists(path) and not self.is_gone(path):
                shutil.copyfile(path, other)
        self.note(f"writing {os.path.basename(os.fsdecode(path))}{where()}")
        return other

    def copy(self, source: Any, target: Any) -> None:
        """Copies what was there before the script to where it moves it."""
        other = self.elsewhere(target) or os.fsdecode(target)
        with self.plainly():
            (shutil.copytree if os.path.isdir(source) else shutil.copyfile)(source, other)

    def make(self, other: str) -> None:
        """Makes a folder of the script's."""
        with self.plainly():
            os.makedirs(other)


_OPEN = io.open


@contextmanager
def held_back(held: Held, card: Placement | None = None) -> Iterator[None]:
    """A context in which a script changes no file outside of temporary folders and reaches no other machine.

    Checkpoints with tensors of a card, if there is one, stay in memory.
    """
    set_here = {**_QUIET, "HF_DATASETS_CACHE": _own_cache(held.folder / "datasets")}
    before = {name: os.environ.get(name) for name in set_here}
    os.environ.update(set_here)
    opened = _opened(held)
    with ExitStack() as entered:
        for owner, values in (
            (builtins, {"open": opened}),
            (io, {"open": opened}),
            (os, _of_os(held)),
            (socket.socket, {"connect": _connect(held), "connect_ex": _connect(held)}),
            (shutil, {"rmtree": _removed_tree(held)}),
            (torch, {"save": _save(card, held), "load": _load(card, held)}),
            (safetensors.torch, _of_safetensors(card, held)),
        ):
            entered.enter_context(replaced(owner, values))
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _own_cache(own: Path) -> str:
    """A cache of data sets for this script, with links to what is cached: pyarrow reads its files from C++, unheard."""
    home = os.environ.get("HF_HOME", os.path.expanduser("~/.cache/huggingface"))
    real = os.path.realpath(os.environ.get("HF_DATASETS_CACHE", os.path.join(home, "datasets")))
    own.mkdir(parents=True, exist_ok=True)
    for folder, _, files in os.walk(real):
        there = own / os.path.relpath(folder, real)
        there.mkdir(exist_ok=True)
        for name in files:
            if not name.endswith(".lock"):
                (there / name).symlink_to(os.path.join(folder, name))
    return str(own)


def _opened(held: Held) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if _WRITES & set(mode):
            return _OPEN(held.write_to(file, keep="w" not in mode), mode, *args, **kwargs)
        return _OPEN(held.read_from(file), mode, *args, **kwargs)

    return opened


def _of_os(held: Held) -> dict[str, Any]:
    looks = [name for name in ("stat", "lstat", "listdir", "scandir", "access", "statvfs") if hasattr(os, name)]
    plain = {name: getattr(os, name) for name in (*looks, "mkdir", "open")}

    def reads(name: str) -> Any:
        def read(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            return plain[name](path if kwargs.get("dir_fd") is not None else held.read_from(path), *args, **kwargs)

        return read

    def mkdir(path: Any, mode: int = 0o777, **kwargs: Any) -> None:
        other = held.elsewhere(path)
        if other is None:
            plain["mkdir"](path, mode, **kwargs)
        elif held.has(other) or (held.has(path) and not held.is_gone(path)):
            raise FileExistsError(17, "File exists", os.fspath(path))
        else:
            held.make(other)

    def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dir_fd") is not None:
            return plain["open"](path, flags, *args, **kwargs)
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        there = held.write_to(path, keep=not flags & os.O_TRUNC) if writes else held.read_from(path)
        return plain["open"](there, flags, *args, **kwargs)

    def removing(name: str) -> Any:
        own = getattr(os, name)

        def remove(path: Any, *args: Any, **kwargs: Any) -> None:
            other = held.elsewhere(path)
            if other is None or kwargs.get("dir_fd") is not None:
                own(path, *args, **kwargs)
            elif held.has(other):
                own(other, *args, **kwargs)
                held.removed(path)
            elif held.is_gone(path) or not held.has(path):
                raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
            else:
                held.removed(path)

        return remove

    def changing(name: str) -> Any:
        """Times and permissions: those of the script's own version."""
        own = getattr(os, name)

        def change(path: Any, *args: Any, **kwargs: Any) -> None:
            other = held.elsewhere(path)
            if other is None or kwargs.get("dir_fd") is not None:
                own(path, *args, **kwargs)
            elif held.has(other):
                own(other, *args, **kwargs)
            elif held.is_gone(path) or not held.has(os.fspath(path)):
                raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
            else:
                held.note(f"changing {os.path.basename(os.fspath(path))}{where()}")

        return change

    def moving(name: str) -> Any:
        own = getattr(os, name)

        def move(source: Any, target: Any, **kwargs: Any) -> None:
            there = held.elsewhere(source)
            if there is None or held.has(there):
                own(held.read_from(source), held.write_to(target, keep=False), **kwargs)
            else:  # what was there before the script stays
                held.write_to(target, keep=False)
                held.copy(source, target)
            if there is not None:
                held.removed(source)

        return move

    def linking(name: str) -> Any:
        own = getattr(os, name)

        def link(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
            own(source, held.write_to(target, keep=False), *args, **kwargs)

        return link

    read = {name: reads(name) for name in looks}
    changes = {name: removing(name) for name in ("remove", "unlink", "rmdir")}
    changes |= {name: moving(name) for name in ("rename", "replace")}
    changes |= {name: changing(name) for name in ("chmod", "utime", "truncate", "chown") if hasattr(os, name)}
    changes |= {name: linking(name) for name in ("link", "symlink")}
    return {**read, **changes, "mkdir": mkdir, "open": opened}


def _removed_tree(held: Held) -> Any:
    """`shutil.rmtree`, which removes what lies in a folder by the folder's number."""
    own = shutil.rmtree

    def remove(path: Any, ignore_errors: bool = False, *args: Any, **kwargs: Any) -> None:
        other = held.elsewhere(path)
        if other is None:
            own(path, ignore_errors, *args, **kwargs)
        elif held.has(other) or (held.has(path) and not held.is_gone(path)):
            with held.plainly():
                own(other, True)
            held.removed(path)
        elif not ignore_errors:
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))

    return remove


def _connect(held: Held) -> Any:
    plain = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> Any:
        host = address[0] if isinstance(address, tuple) else ""
        if host and host not in ("localhost", "::1") and not str(host).startswith("127."):
            held.note(f"a connection to {host}{where()}")
            raise ConnectionRefusedError(111, "this run reaches no other machine")
        return plain(self, address)

    return connect


# ------------------------------------------------------------------------------------------- checkpoints


def _save(card: Placement | None, held: Held) -> Any:
    plain = torch.save

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if card is None or not any(_unknown(card, each) for each in tensors_in(obj)):
            named = isinstance(f, str | os.PathLike)
            plain(obj, held.write_to(f, keep=False) if named else f, *args, **kwargs)
            return
        held.checkpoints[_key(f)] = map_tensors(card.kept, obj)
        if isinstance(f, str | os.PathLike):
            _OPEN(held.write_to(f, keep=False), "wb").close()

    return save


def _load(card: Placement | None, held: Held) -> Any:
    plain = torch.load

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        named = isinstance(f, str | os.PathLike)
        if card is None:
            return plain(held.read_from(f) if named else f, map_location, *args, **kwargs)
        there = card.names(map_location)
        if _key(f) in held.checkpoints:
            saved = held.checkpoints[_key(f)]
            return map_tensors(card.onto if there or map_location is None else torch.clone, saved)
        read = plain(held.read_from(f) if named else f, "cpu" if there else map_location, *args, **kwargs)
        return map_tensors(card.onto, read) if there else read

    return load


def _of_safetensors(card: Placement | None, held: Held) -> dict[str, Any]:
    """What writes a file of safetensors, in Rust, from the addresses of tensors."""
    write = safetensors.serialize_file

    def reads(plain: Callable[..., Any]) -> Callable[..., Any]:
        def flattened(tensors: dict[str, torch.Tensor], *args: Any) -> Any:
            unknown = card is not None and any(_unknown(card, each) for each in tensors.values())
            return {} if unknown else plain(tensors, *args)

        return flattened

    def written(tensors: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        write(tensors, held.write_to(file, keep=False), *args, **kwargs)

    readers = {name: each for name, each in vars(safetensors.torch).items() if name.startswith("_flatten")}
    return {"serialize_file": written, **{name: reads(each) for name, each in readers.items()}}


def _unknown(card: Placement, tensor: torch.Tensor) -> bool:
    """Has a tensor no values that could be written?"""
    return card.holds(tensor) or isinstance(tensor, FakeTensor)


def _key(file: Any) -> Any:
    return os.path.abspath(file) if isinstance(file, str | os.PathLike) else id(file)
