"""Finds the living objects of a class."""

import gc
from collections.abc import Iterator
from itertools import compress
from typing import Any


def living(kind: type) -> list[Any]:
    """All objects of a class and of classes derived from it."""
    objects, kinds = gc.get_objects(), frozenset(_kinds(kind))
    return list(compress(objects, map(kinds.__contains__, map(type, objects))))  # there may be a million objects


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    below: list[type] = kind.__subclasses__()
    for each in below:
        yield from _kinds(each)
