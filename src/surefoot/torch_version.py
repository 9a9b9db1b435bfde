"""Refuses a torch that is missing or too old, in one line, before anything imports it."""

import re
from functools import cache
from importlib.util import find_spec

from surefoot.errors import MissingPackage

OLDEST = (2, 13)
"""The oldest torch that surefoot is tested with. pyproject.toml asks for the same."""


@cache
def require_torch() -> None:
    """Reads the version that pip has noted. A torch built from source may have none; it is taken as it is."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and `import surefoot` is quick

    oldest = ".".join(map(str, OLDEST))
    try:
        found = version("torch")
    except PackageNotFoundError:
        if find_spec("torch") is None:
            raise MissingPackage(
                f"surefoot needs torch, which is not installed: pip install 'torch>={oldest}'"
            ) from None
        return
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < OLDEST:
        raise MissingPackage(
            f"surefoot needs torch {oldest} or newer, and torch {found} is installed: pip install 'torch>={oldest}'"
        )
