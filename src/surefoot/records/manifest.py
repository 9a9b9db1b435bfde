"""A manifest: the shards of a corpus of tokens, and the digests to verify them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from surefoot.records.tally import Account, Tally

TokenType = Literal["uint16", "uint32", "uint8", "int32", "int64"]
"""surefoot writes the first two and reads all."""

ITEM_BYTES: dict[str, int] = {"uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "int64": 8}
TRAIN, HELD_OUT = "train", "held-out"


@dataclass(frozen=True)
class Shard:
    """Tokens of one source in one file, starting at byte `offset`.

    `digest` and `ends_digest` cover every byte of the tokens and of the document ends, each through a file of page
    hashes. They are empty if nothing was hashed.
    """

    file: str
    tokens: int
    documents: int = 0
    text_bytes: int = 0
    source: str = "text"
    part: str = TRAIN
    offset: int = 0
    digest: str = ""
    ends_digest: str = ""


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`. `end_of_document` is the token after every document; -1 if there is none."""

    dtype: TokenType
    vocabulary: int
    tokenizer: str
    end_of_document: int
    shards: tuple[Shard, ...]
    format: str = "surefoot tokens 1"
    digest: str = ""

    @property
    def tokens(self) -> int:
        """Of all shards."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def documents(self) -> int:
        """Of all shards."""
        return sum(shard.documents for shard in self.shards)

    @property
    def text_bytes(self) -> int:
        """Bytes of the tokenised text; 0 if they were not counted."""
        return sum(shard.text_bytes for shard in self.shards)

    @property
    def hashed(self) -> bool:
        """Whether every token can be verified."""
        return all(shard.digest for shard in self.shards)

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text per token; None if the bytes were not counted."""
        return self.text_bytes / self.tokens if self.text_bytes else None

    def only(self, part: str = "", sources: Iterable[str] = ()) -> "Manifest":
        """The manifest with only the shards of this part and these sources. By default it keeps all."""
        wanted = set(sources)
        chosen = (each for each in self.shards if part in ("", each.part) and (not wanted or each.source in wanted))
        return replace(self, shards=tuple(chosen))

    def tally(self) -> Tally:
        """Tokens, documents and bytes of text, by part and source."""
        return Tally.of(
            Account(f"{unit}/{shard.part}/{shard.source}", amount, unit)
            for shard in self.shards
            for unit, amount in (
                ("tokens", shard.tokens),
                ("documents", shard.documents),
                ("bytes", shard.text_bytes),
            )
        )
