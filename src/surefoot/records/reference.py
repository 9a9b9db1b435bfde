"""What log-probabilities under a reference policy belong to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """The corpus and the model of log-probabilities, and how they were computed."""

    corpus: str
    """The identity of the corpus."""
    model: str
    weights: str
    """A digest of the model's weights."""
    precision: str
    pairs: int
    digest: str = ""
    """Of the log-probabilities."""
