"""Facts: what observers and probes hand to rules, by subject. Typed, plain data; no torch.

A rule names the facts it reads in the annotations of its parameters. Observers fill in records of single events while
the loop runs. The facts do not change while a rule reads them.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar

Subject = TypeVar("Subject")


class Facts:
    """One record per subject. A subject with no observations has an empty record."""

    def __init__(self, *records: Any) -> None:
        self._records = {type(each): each for each in records}

    def __getitem__(self, kind: type[Subject]) -> Subject:
        """The facts of one subject, by their class."""
        found: Subject = self._records.get(kind) or kind()
        return found

    def having(self, *records: Any) -> "Facts":
        """A copy of these facts, with the given records replaced."""
        return Facts(*(self._records | {type(each): each for each in records}).values())


def merged(parts: Iterable[Any]) -> Facts:
    """The facts from parts of records, each of which has some of the fields of its class.

    What several parts collect is joined, in their order. Any other field has the value of the one part that sets it.
    """
    facts = Facts()
    for each in parts:
        facts = facts.having(_joined(facts[type(each)], each))
    return facts


def _joined(one: Any, other: Any) -> Any:
    """Both parts of a record in one."""
    changes = {}
    for field in dataclasses.fields(other):
        before, value = getattr(one, field.name), getattr(other, field.name)
        if value == field.default:
            continue
        if field.default != () and before != field.default:
            raise ValueError(f"two observers hand over {type(one).__name__}.{field.name}: {before!r} and {value!r}")
        changes[field.name] = (*before, *value) if field.default == () else value
    return dataclasses.replace(one, **changes)
