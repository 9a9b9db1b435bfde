"""The token ledger: what became of every token of a corpus, source by source, and what is left."""

from dataclasses import dataclass

from surefoot.records.tally import Account, Tally


@dataclass(frozen=True)
class SourceTokens:
    """One source: `held` on disk, of which `masked` are read and never predicted, and `cropped` never used.

    `valid` bore a loss for the first time, `repeated` once more.
    """

    source: str
    held: int
    valid: int
    repeated: int
    masked: int
    cropped: int

    @property
    def usable(self) -> int:
        """Tokens that can bear a loss."""
        return self.held - self.masked - self.cropped

    @property
    def left(self) -> int:
        """Tokens that can bear a loss and did not yet."""
        return self.usable - self.valid

    @property
    def epochs(self) -> float:
        """How often the source was gone through."""
        return (self.valid + self.repeated) / self.usable if self.usable else 0.0


@dataclass(frozen=True)
class TokenLedger:
    """All sources, and the positions of batches that held no token."""

    sources: tuple[SourceTokens, ...]
    padding: int = 0

    @property
    def trained(self) -> int:
        """Tokens that bore a loss, each time they did."""
        return sum(each.valid + each.repeated for each in self.sources)

    @property
    def positions(self) -> int:
        """Places in all batches: what the model computed on."""
        return self.trained + self.padding

    def tokens_per_parameter(self, parameters: int) -> float:
        """Trained tokens to a parameter; about 20 are compute-optimal (Hoffmann et al., 2022)."""
        return self.trained / parameters

    @property
    def left(self) -> int:
        """Tokens that can bear a loss and did not yet."""
        return sum(each.left for each in self.sources)

    def totals(self, parameters: int | None = None) -> dict[str, float]:
        """What was trained and what is left, in all; with parameters, the tokens to each."""
        found: dict[str, float] = {"trained": self.trained, "padding": self.padding, "left": self.left}
        return found | ({"tokens_per_parameter": self.tokens_per_parameter(parameters)} if parameters else {})

    def tally(self) -> Tally:
        """The same as accounts."""
        kinds = ("valid", "repeated", "masked", "cropped", "left")
        booked = [
            Account(f"tokens/{kind}/{each.source}", getattr(each, kind), "tokens")
            for each in self.sources
            for kind in kinds
        ]
        return Tally.of([*booked, Account("tokens/padding", self.padding, "tokens")])
