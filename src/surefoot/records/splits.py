"""What training and validation were given: each column in each part, what occurs in both, and linear fits."""

from dataclasses import dataclass, field

TRAINING, VALIDATION, BOTH = "training", "validation", "both"
TARGET = "target"


@dataclass(frozen=True)
class Column:
    """The values of one input of the model, or of the targets, in one part of the data or in both."""

    name: str
    part: str
    values: int
    mean: float
    deviation: float
    lowest: float
    highest: float
    usual: float
    """The most frequent value, and its share of all values."""
    usual_share: float
    whole: bool = False
    """All values are whole numbers."""
    labels: dict[str, float] = field(default_factory=dict)
    """Of targets with few values: the share of each."""


@dataclass(frozen=True)
class Rows:
    """How many rows of one part entered the model, and how many different ones were kept for the profile."""

    part: str
    seen: int
    kept: int
    kept_bytes: int


@dataclass(frozen=True)
class LinearFit:
    """A linear model fitted on one part: its score on other rows of that part, and on the other part."""

    fitted_on: str
    within: float
    across: float


@dataclass(frozen=True)
class SplitProfile:
    """The data of a watched script, as its models were given it."""

    rows: tuple[Rows, ...]
    columns: tuple[Column, ...]
    shared: int = 0
    """How many of the kept validation rows have the same inputs as a training row."""
    shared_with_other_target: int = 0
    fits: tuple[LinearFit, ...] = ()
    score: str = ""
    """What the scores are: "accuracy" or "R2"."""
    guess: float = 0.0
    """The score of always answering the same."""

    @property
    def disagrees(self) -> bool:
        """Does a linear model hold within each part, and not from one to the other?"""
        return bool(self.fits) and all(
            each.within > self.guess + 0.1 and each.across - self.guess < 0.3 * (each.within - self.guess)
            for each in self.fits
        )
