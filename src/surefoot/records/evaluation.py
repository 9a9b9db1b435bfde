"""How a trained model did on data: loss and metrics over all samples."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Score:
    """The figures on one data set."""

    data: str
    samples: int | None
    """None for a stream, of which the first `evaluation_batches` micro-batches count."""
    loss: float | None
    """None if the recipe has its own step and no loss."""
    perplexity: float | None
    """Of tokens: e to the power of the loss."""
    bits_per_byte: float | None
    """Of text."""
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name."""
        named = {"loss": self.loss, "perplexity": self.perplexity, "bits per byte": self.bits_per_byte}
        return {**{name: value for name, value in named.items() if value is not None}, **self.metrics}


@dataclass(frozen=True)
class Evaluation:
    """The scores of a run or of an exported file."""

    source: str
    file: str
    """The file that was scored."""
    recipe: str
    knobs: dict[str, str | int | float | bool | None]
    about: str
    scores: tuple[Score, ...]
    micro_batch_size: int
    ranks: int
    device: str
    seconds: float
    loss_is_mean: bool = False
    """Whether the loss is a mean of the means of micro-batches, and so depends on their size."""
