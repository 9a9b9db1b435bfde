"""The held-out part of a corpus: batches of it, and its loss as bits per byte, which no tokenizer can flatter."""

from __future__ import annotations

from collections.abc import Iterator

from surefoot import units
from surefoot.data.formats import open_corpus
from surefoot.data.shards import Corpus
from surefoot.data.windows import TokenWindows, Window
from surefoot.errors import DataError
from surefoot.records.manifest import HELD_OUT


def held_out(corpus: str | Corpus) -> Corpus:
    """The held-out part of a corpus."""
    found = (open_corpus(corpus) if isinstance(corpus, str) else corpus).only(HELD_OUT)
    if not found.manifest.shards:
        raise DataError(f"{found.folder} has no held-out part; `surefoot data tokenize --held-out 0.01` makes one")
    return found


def held_out_batches(corpus: str | Corpus, context: int, size: int, *, batches: int | None = None) -> Iterator[Window]:
    """The windows of the held-out part, each once, in order; at most `batches` batches."""
    windows = TokenWindows(held_out(corpus), context)
    end = len(windows) if batches is None else min(len(windows), batches * size)
    for first in range(0, end, size):
        yield windows.__getitems__(range(first, min(first + size, end)))


def bits_per_byte(loss: float, corpus: str | Corpus) -> float:
    """A mean loss in nats per token, as `Step.evaluate` returns it, in bits per byte of held-out text."""
    per_token = held_out(corpus).manifest.bytes_per_token
    if per_token is None:
        raise DataError("the manifest does not count the bytes of this text; `surefoot data tokenize` does")
    return units.bits_per_byte(loss, per_token)
