"""Which data a run was trained on, so that a resume can tell whether it still is that data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataIdentity:
    """What a data set says it is, or how long it is; `digest` is the hash of `items` samples of it.

    `unstable` of them were not the same when they were read again, with the same random numbers.
    """

    name: str
    items: int = 0
    digest: str = ""
    unstable: int = 0

    def __str__(self) -> str:
        return f"{self.name}, of which {self.items} hash to {self.digest}" if self.items else self.name
