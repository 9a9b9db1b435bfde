"""The identity of a run's data, so that a resume can check that the data is still the same."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataIdentity:
    """The name that a data set gives itself, or its length. `digest` is the hash of `items` of its samples.

    `unstable` samples differed when they were read again with the same random numbers.
    """

    name: str
    items: int = 0
    digest: str = ""
    unstable: int = 0

    def __str__(self) -> str:
        return f"{self.name}, {self.items} of them with digest {self.digest}" if self.items else self.name
