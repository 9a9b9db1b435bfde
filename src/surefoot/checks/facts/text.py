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


@dataclass(slots=True)
class TrainedText:
    """The texts that a model with weights of somebody's was trained on, as far as they were read."""

    model: str
    where: str
    rows: int
    start: str = ""
    """The token that begins texts, by the config or the tokenizer."""
    starts: int = 0
    doubled_starts: int = 0
    """How many of `starts` are followed by another one at once."""
    end: str = ""
    """The token that ends texts, by the config or the tokenizer."""
    lengths: int = 0
    """The number of different lengths."""
    longest: int = 0
    ended: int = 0
    """Rows whose last token, or the one before, is the end."""
    end_read: int = 0
    """Rows that contain the end."""
    end_learned: int = 0
    """Rows in which the end bears loss."""
    learned: int = 0
    """Rows in which a token bears loss; 0 if that is not known."""
    cut: int = 0
    """Rows of the longest length that do not end with the end, or have no token that bears loss."""
    aligned: bool = False
    """Rows begin with the same token, and their first tokens bear no loss: they are texts, not windows of a stream."""
    whole: bool = False
    """Every token of every row bears loss."""
    shared: str = ""
    """Tokens that stand between two parts of every row that differ from row to row: the mark of an answer."""
    own_mark: str = ""
    """What the model's own chat template writes before an answer, if no row has it and rows share another mark."""
    tokenizer_size: int = 0
    embedding_rows: int = 0


@dataclass(frozen=True, slots=True)
class TextFacts:
    """All facts of this subject."""

    sequences: tuple[Sequence, ...] = ()
    lenient_masks: tuple[str, ...] = ()
    """Lines that set the scores of padding to about zero before a softmax."""
    narrow_tokens: tuple[NarrowTokens, ...] = ()
    trained_texts: tuple[TrainedText, ...] = ()
