"""Whose a file is: the user's, surefoot's, Python's or that of an installed package."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from functools import cache
from pathlib import PurePath
from typing import Literal

Owner = Literal["user", "surefoot", "python", "installed", "nobody"]

OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder of surefoot. In an installed wheel it lies among the other packages."""
_INSTALLED = ("site-packages", "dist-packages")
"""The folders that pip and Debian install into. By name: a virtual environment may see those of several Pythons."""
_OTHER_PYTHONS = re.compile(
    r"[\\/]lib(64)?[\\/]python3(\.\d+)?t?[\\/]|[\\/]python3\d+t?[\\/](lib|[^\\/]+\.zip)[\\/]", re.I
)
"""The standard library of any Python: a stack may come from another process or another machine."""
_FOLDERS = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
_ZIPS = {entry for entry in sys.path if re.fullmatch(r"python3\d+\.zip", os.path.basename(entry))}
_PYTHON = tuple(os.path.normcase(folder) + os.sep for folder in _FOLDERS | _ZIPS)
_SCRIPTS = os.path.normcase(sysconfig.get_path("scripts")) + os.sep
DRIVING = (
    "surefoot.ways",
    "surefoot.planning.recipe_plan",
    "surefoot.training.loop",
    "surefoot.training.opening",
    "surefoot.training.overfit",
    "surefoot.training.lr_range",
    "surefoot.training.reference",
    "surefoot.debug.look.look",
    "surefoot.debug.runs.against",
    "surefoot.debug.runs.audit",
    "surefoot.debug.runs.compare",
    "surefoot.debug.runs.traced_script",
    "surefoot.debug.spikes.replay",
    "surefoot.exports.evaluate",
    "surefoot.exports.generate",
    "surefoot.exports.merge",
    "surefoot.exports.predict",
    "surefoot.exports.serve",
)
"""Modules that contain surefoot's own loops. Their lines are not user code."""
_named = set[str]()


@cache
def owner(file: str) -> Owner:
    """Whose a file is, by its path. An installed package is the user's if a command names it."""
    if file.startswith("<"):
        return "nobody"
    if is_own(file):
        return "surefoot"
    if package := package_of(file):
        return "user" if package in _named else "installed"
    return "python" if _is_pythons(os.path.normcase(file)) else "user"


def is_users(file: str) -> bool:
    """Is this file neither surefoot's nor Python's, nor one of an installed package?"""
    return owner(file) == "user"


def is_own(file: str) -> bool:
    """Is this a file of surefoot?"""
    return os.path.normcase(file).startswith(os.path.normcase(OWN))


def package_of(file: str) -> str:
    """The name of the installed package that a file belongs to; empty if it was not installed."""
    parts = PurePath(file).parts
    places = [number for number, part in enumerate(parts[:-1]) if part.lower() in _INSTALLED]
    return parts[places[-1] + 1].removesuffix(".py") if places else ""


def name_as_users(package: str) -> None:
    """Takes an installed package for the user's: a command names its recipe or its script. surefoot stays our own."""
    if package not in ("surefoot", *_named):
        _named.add(package)
        owner.cache_clear()


def _is_pythons(file: str) -> bool:
    """Is it a file of the standard library, or a command that pip wrote? A `.py` beside those may be the user's."""
    name = file.removeprefix(_SCRIPTS)
    is_command = name != file and (not name.endswith(".py") or ".exe" in name)
    return is_command or file.startswith(_PYTHON) or _OTHER_PYTHONS.search(file) is not None
