"""Text: sequences of tokens, their padding and their targets."""

from dataclasses import dataclass


@dataclass(slots=True)
class Sequence:
    """How the targets of a token model align with its inputs."""

    model: str
    where: str
    shift: int | None
    """The offset at which targets equal inputs; None if there is none."""
    match: float
    ends_ignored: int | None = None
    """An end token that occurs in inputs but in no valid target."""
    padding_counted: int = 0
    """Valid targets at padded positions."""
    padding_seen_by: str = ""
    """How padding was recognised: a mask, or a trailing run of one token."""


@dataclass(slots=True)
class NarrowTokens:
    """A token array that uses the full range of its dtype, which is smaller than the rows of the embedding."""

    dtype: str
    holds: int
    rows: int
    in_source: bool = False
    """The array no longer exists, but the source makes one of this dtype."""


@dataclass(frozen=True, slots=True)
class TextFacts:
    """All facts of this subject."""

    sequences: tuple[Sequence, ...] = ()
    lenient_masks: tuple[str, ...] = ()
    """Lines that set the scores of padding to about zero before a softmax."""
    narrow_tokens: tuple[NarrowTokens, ...] = ()
