"""Facts: what observers and probes hand to rules, by subject. Typed, plain data; no torch.

A rule names the facts it reads by the annotations of its parameters. Observers fill the records of single events in
as the loop goes on; what a rule is given does not change while it is judged.
"""

from typing import Any, TypeVar

Subject = TypeVar("Subject")


class Facts:
    """One record for each subject. A subject of which nothing was seen has an empty one."""

    def __init__(self, *records: Any) -> None:
        self._records = {type(each): each for each in records}

    def __getitem__(self, kind: type[Subject]) -> Subject:
        """The facts of one subject, by their class."""
        found: Subject = self._records.get(kind) or kind()
        return found

    def having(self, *records: Any) -> "Facts":
        """The same facts with other records for some subjects."""
        return Facts(*(self._records | {type(each): each for each in records}).values())
