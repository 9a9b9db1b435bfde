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
    empty_turns: "Lines | None" = None
    """Lines in which the assistant says nothing. Such a turn bears no loss."""
    unwritten: dict[str, "Lines"] = field(default_factory=dict)
    """Lines with something that the chat template does not write, by its name, for example `tool_calls`."""
    shapes: dict[str, int] = field(default_factory=dict)
    """How many lines had each spelling, for example `ShareGPT`."""
    which: dict[str, "Lines"] = field(default_factory=dict)
    """Lines that were cut, dropped or split, by what became of them."""
    broken: dict[str, "Lines"] = field(default_factory=dict)
    """Dropped lines that could not be read, by the reason."""
    parts: dict[str, int] = field(default_factory=dict)
    """How many lines were kept in each part."""
    unread: tuple[str, ...] = ()
    """Splits of the data that nothing was taken from."""


@dataclass(frozen=True)
class Lines:
    """How many lines of the files something is true of, and the first few of them."""

    count: int
    first: tuple[str, ...]
    """As `file:line`."""


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
