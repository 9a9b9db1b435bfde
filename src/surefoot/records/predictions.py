"""What a trained model said of inputs, and how fast."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Predictions:
    """The answers are JSON lines of their own."""

    source: str
    file: str
    """The file with the trained model."""
    inputs: str
    recipe: str
    items: int
    seconds: float
    """Of all items, without loading the model."""
