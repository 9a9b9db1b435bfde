"""Which torch surefoot works with: refuses one that is missing or too old, and warns of one that nobody has tried."""

import re
import warnings
from functools import cache
from importlib.util import find_spec

from surefoot.errors import MissingPackage

OLDEST = (2, 8)
"""The oldest torch that surefoot is tested with. pyproject.toml asks for the same."""
TRIED = ("2.8.0", "2.10.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""The versions that were tried; docs/measured/torch.md says with what."""


@cache
def require_torch() -> None:
    """Reads the version that pip has noted, before anything imports torch.

    A torch built from source may have none; it is taken as it is.
    """
    if (found := _noted()) is None:
        if find_spec("torch") is None:
            raise MissingPackage(f"surefoot needs torch, which is not installed: pip install 'torch>={_text(OLDEST)}'")
        return
    if numbers(found) < OLDEST:
        raise MissingPackage(
            f"surefoot needs torch {_text(OLDEST)} or newer, and torch {found} is installed: "
            f"pip install 'torch>={_text(OLDEST)}'"
        )
    if not is_tried(found):
        # A file that does not exist: Python shows the warning in one line, without a line of source
        warnings.warn_explicit(f"{not_tried(found)}; `surefoot doctor` tests it", UserWarning, "surefoot", 0)


def is_tried(found: str) -> bool:
    """Whether this version, or another patch of the same release, was tried."""
    return numbers(found) in map(numbers, TRIED)


def not_tried(found: str) -> str:
    """What to say of a version that nobody has tried."""
    return f"surefoot was not tried with torch {found}, only with {', '.join(TRIED)}"


def numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cu130` is (2, 13)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _noted() -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and `import surefoot` is quick

    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
