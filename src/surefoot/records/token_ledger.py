"""The token ledger: how a run used every token of a corpus, by source, and how many are left."""

from dataclasses import dataclass

from surefoot.records.tally import Account, Tally

OPTIMAL_TOKENS_PER_PARAMETER = 20
"""About compute-optimal for training from scratch (Hoffmann et al., 2022, https://arxiv.org/abs/2203.15556)."""


@dataclass(frozen=True)
class SourceTokens:
    """One source. Of the tokens `held` on disk, `masked` are read but never predicted, and `cropped` are never used.

    `valid` counts tokens that contributed to a loss for the first time, `repeated` those that did so again.
    """

    source: str
    held: int
    valid: int
    repeated: int
    masked: int
    cropped: int

    @property
    def usable(self) -> int:
        """Tokens that can contribute to a loss."""
        return self.held - self.masked - self.cropped

    @property
    def left(self) -> int:
        """Tokens that can contribute to a loss and have not yet."""
        return self.usable - self.valid

    @property
    def epochs(self) -> float:
        """How often the run went through the source."""
        return (self.valid + self.repeated) / self.usable if self.usable else 0.0


@dataclass(frozen=True)
class TokenLedger:
    """All sources, and the number of padded positions in batches."""

    sources: tuple[SourceTokens, ...]
    padding: int = 0

    @property
    def trained(self) -> int:
        """Tokens that contributed to a loss, repetitions included."""
        return sum(each.valid + each.repeated for each in self.sources)

    @property
    def positions(self) -> int:
        """All positions in batches, padding included."""
        return self.trained + self.padding

    def tokens_per_parameter(self, parameters: int) -> float:
        """Trained tokens per parameter; see `OPTIMAL_TOKENS_PER_PARAMETER`."""
        return self.trained / parameters

    @property
    def left(self) -> int:
        """Tokens that can contribute to a loss and have not yet."""
        return sum(each.left for each in self.sources)

    def totals(self, parameters: int | None = None) -> dict[str, float]:
        """Total tokens trained and left; with `parameters`, also the tokens per parameter."""
        found: dict[str, float] = {"trained": self.trained, "padding": self.padding, "left": self.left}
        return found | ({"tokens_per_parameter": self.tokens_per_parameter(parameters)} if parameters else {})

    def tally(self) -> Tally:
        """The same numbers as accounts."""
        kinds = ("valid", "repeated", "masked", "cropped", "left")
        booked = [
            Account(f"tokens/{kind}/{each.source}", getattr(each, kind), "tokens")
            for each in self.sources
            for kind in kinds
        ]
        return Tally.of([*booked, Account("tokens/padding", self.padding, "tokens")])
