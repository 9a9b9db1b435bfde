"""Facts: what observers and probes hand to rules, by subject. Typed, plain data; no torch.

A rule names the facts it reads in the annotations of its parameters. Observers fill in records of single events while
the loop runs. The facts do not change while a rule reads them.
"""

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
