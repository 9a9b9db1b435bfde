"""A manifest: what a corpus of tokens holds, shard by shard, and the digests it is held to."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from surefoot.records.tally import Account, Tally

TokenType = Literal["uint16", "uint32", "uint8", "int32", "int64"]
"""The first two are what surefoot writes; the others are read."""

ITEM_BYTES: dict[str, int] = {"uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "int64": 8}
TRAIN, HELD_OUT = "train", "held-out"


@dataclass(frozen=True)
class Shard:
    """Tokens of one source in one file, from byte `offset` on.

    `digest` and `ends_digest` fix every byte of the tokens and of the documents' ends, through a file of
    page hashes each; empty where nobody has hashed them.
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
    """What `manifest.json` holds. `end_of_document` is the token after every document; -1 if there is none."""

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
        """Of the text that was tokenised; 0 where nobody has counted."""
        return sum(shard.text_bytes for shard in self.shards)

    @property
    def hashed(self) -> bool:
        """Whether every token can be verified."""
        return all(shard.digest for shard in self.shards)

    @property
    def bytes_per_token(self) -> float | None:
        """Of the text that the tokens were made from; None where nobody has counted its bytes."""
        return self.text_bytes / self.tokens if self.text_bytes else None

    def only(self, part: str = "", sources: Iterable[str] = ()) -> "Manifest":
        """The shards of one part, of some sources; without names, of all."""
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
