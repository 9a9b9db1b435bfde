"""What became of the conversations that were turned into a corpus."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ChatReport:
    """How many were read, kept, cut and dropped, and the tokens of each role."""

    corpus: str
    read: int
    kept: int
    cut: int
    """Kept without their last tokens."""
    too_long: int
    """Dropped: more than `context` tokens."""
    without_answer: int
    """Dropped: no token would bear loss. Of a preference: no token of one of the answers."""
    context: int
    longest: int
    tokens: int
    bearing_tokens: int
    tokens_by_role: dict[str, int] = field(default_factory=dict)
    pairs: bool = False
    """Whether each is a preference: two conversations, one with the better answer, one with the worse."""
    alike: int = 0
    """Dropped preferences: both answers were the same."""


@dataclass(frozen=True)
class Preview:
    """Conversations as runs of tokens with one role, with or without loss."""

    corpus: str
    documents: tuple[tuple["PreviewRun", ...], ...]


@dataclass(frozen=True)
class PreviewRun:
    """Neighbouring tokens of one role that all bear loss, or all do not."""

    role: str
    bears_loss: bool
    tokens: tuple[str, ...]
