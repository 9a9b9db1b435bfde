"""Causes: one kind of raised error per file, each a pure function of the facts."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from surefoot.records.explanation import Cause, Raised


def cause_of(raised: Raised) -> Cause | None:
    """The first cause that fits the facts. Each file here says which errors it knows, and no two know the same."""
    for found in sorted(each.name for each in pkgutil.iter_modules(__path__)):
        cause: Cause | None = import_module(f"{__name__}.{found}").cause(raised)
        if cause is not None:
            return cause
    return None
