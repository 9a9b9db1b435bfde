"""A set of safetensors files and the index that says which tensor is in which, as Hugging Face's libraries write it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from surefoot.errors import SurefootError
from surefoot.records.codec import Malformed, parse, read_plain_file

SUFFIX = ".safetensors.index.json"
"""How the name of an index ends."""
PART = re.compile(r".+-\d{5}-of-\d{5}\.safetensors")
"""The name of one file of a set."""


def places_of(index: Path, error: type[SurefootError], *, before: str = "") -> dict[str, Path]:
    """The file of each tensor. All files must stand beside the index. `before` begins the errors."""
    try:
        named = parse(read_plain_file(index, error=error))["weight_map"]
        strange = sorted(str(file) for file in named.values() if not isinstance(file, str) or Path(file).name != file)
    except (Malformed, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise error(f"{before}{index} is damaged: {problem}") from problem
    if strange:
        raise error(f"{before}{index} names {strange[0]!r}, which is not a file beside it")
    missing = sorted(file for file in set(named.values()) if not (index.parent / file).is_file())
    if missing:
        raise error(f"{before}{index} names {', '.join(missing[:6])}, and {index.parent} does not hold it")
    if not named:
        raise error(f"{before}{index} is damaged: it names no tensor")
    return {name: index.parent / file for name, file in named.items()}


def refuse_other_contents(
    index: Path,
    places: Mapping[str, Path],
    held: Mapping[Path, Collection[str]],
    error: type[SurefootError],
    *,
    before: str = "",
) -> None:
    """Refuses a set whose files do not hold the tensors that the index says. `held` has the names in each file."""
    for name, file in places.items():
        if name not in held[file]:
            raise error(
                f"{before}{index} says that {name} is in {file.name}, which does not hold it; copy the set again"
            )
    for file, names in held.items():
        for name in names:
            if places.get(name) != file:
                raise error(f"{before}{file} holds {name}, which {index.name} does not say; copy the set again")
