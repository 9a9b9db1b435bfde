"""Text that a trained model made, and how fast."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Generated:
    """The text after a prompt."""

    run: str
    prompt: str
    text: str
    tokens: int
    seconds: float
    """Of all tokens, without loading the model."""
    cached: bool
    """Whether keys and values were kept from token to token."""
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int
    chat: bool = False
    """Whether the prompt was put into a chat template as a user's message; the text is the answer."""
