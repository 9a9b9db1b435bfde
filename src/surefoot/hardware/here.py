"""The machine that this runs on, as `surefoot hardware measure` found it."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from surefoot.errors import UnknownDevice
from surefoot.hardware.datasheet import Datasheet
from surefoot.records.codec import read_record

HERE = "here"


def here_file() -> Path:
    """Where the measured datasheet is kept: the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "surefoot" / "here.json"


def keep_here(sheet: Datasheet) -> Path:
    """Keeps a measured datasheet; an older one is replaced."""
    path = here_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.unlink(missing_ok=True)
    with draft.open("x", encoding="utf-8") as file:  # "x" follows no link
        file.write(json.dumps(asdict(sheet), indent=1) + "\n")
    draft.replace(path)
    return path


def here() -> Datasheet:
    """The datasheet of this machine."""
    path = here_file()
    if not path.exists():
        raise UnknownDevice("this machine has not been measured: run `surefoot hardware measure`")
    try:
        return read_record(Datasheet, path, error=UnknownDevice)
    except UnknownDevice as error:
        raise UnknownDevice(f"{error}; `surefoot hardware measure` writes it anew") from error
