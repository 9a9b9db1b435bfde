"""The identity of a run's data, so that a resume can check that the data is still the same."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataIdentity:
    """The name that a data set gives itself, or its length. `digest` is the hash of `items` of its samples.

    `unstable` samples differed when they were read again with the same random numbers. `hashes` has the hash of every
    one that was read, or of every `group` neighbours: `17:5f1c9e02 40:...`. An older run has none.
    """

    name: str
    items: int = 0
    digest: str = ""
    unstable: int = 0
    hashes: str = ""
    group: int = 1

    def is_same(self, other: "DataIdentity") -> bool:
        """Whether nothing shows that two data sets differ. Only what both have read is compared."""
        if self.name != other.name or bool(self.items) != bool(other.items) or self._unlike(other):
            return False
        alike = not (self.hashes and other.hashes) or list(self._by_number()) == list(other._by_number())
        return not alike or self.items != other.items or self.digest == other.digest

    def first_unlike(self, other: "DataIdentity") -> str:
        """`sample 17 differs, and 2 more`; empty if it is not known which samples differ."""
        unlike = self._unlike(other)
        if not unlike:
            return ""
        more = f", and {len(unlike) - 1:,} more" if unlike[1:] else ""
        if self.group == 1:
            return f"sample {unlike[0]} differs{more}"
        return f"one of the {self.group} samples from {unlike[0]} on differs{more and f'{more} such groups'}"

    def _unlike(self, other: "DataIdentity") -> list[str]:
        if (self.name, self.group) != (other.name, other.group):
            return []
        here, there = self._by_number(), other._by_number()
        return [number for number in here if number in there and here[number] != there[number]]

    def _by_number(self) -> dict[str, str]:
        return {number: each for number, _, each in (part.partition(":") for part in self.hashes.split())}

    def __str__(self) -> str:
        return f"{self.name}, {self.items} of them with digest {self.digest}" if self.items else self.name
