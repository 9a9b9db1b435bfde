"""The datasheet of this machine, as `surefoot hardware measure` measured it."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from surefoot.errors import UnknownDevice
from surefoot.hardware.datasheet import Datasheet
from surefoot.records.codec import read_record

HERE = "here"


def here_file() -> Path:
    """The path of the measured datasheet, in the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "surefoot" / "here.json"


def keep_here(sheet: Datasheet) -> Path:
    """Saves a measured datasheet and replaces an older one."""
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
        raise UnknownDevice(f"{error}; run `surefoot hardware measure` to replace it") from error
