"""Text: sequences of tokens, their padding and their targets."""

from dataclasses import dataclass


@dataclass(slots=True)
class Sequence:
    """How the targets of a token model lie beside its inputs."""

    model: str
    where: str
    shift: int | None
    """The offset at which targets equal inputs; None where there is none."""
    match: float
    ends_ignored: int | None = None
    """An end token that inputs hold and no valid target does."""
    padding_counted: int = 0
    """Valid targets at padded positions."""
    padding_seen_by: str = ""
    """How padding was told from text: a mask, or a trailing run of one token."""


@dataclass(slots=True)
class NarrowTokens:
    """An array that tokens come from, filled to the brim, with fewer numbers than the embedding has rows."""

    dtype: str
    holds: int
    rows: int
    in_source: bool = False
    """The array is gone; the source makes one of this dtype."""


@dataclass(frozen=True, slots=True)
class TextFacts:
    """All facts of this subject."""

    sequences: tuple[Sequence, ...] = ()
    lenient_masks: tuple[str, ...] = ()
    """Lines that set scores of padding to zero or near it, before a softmax."""
    narrow_tokens: tuple[NarrowTokens, ...] = ()
