"""Pairs: a better and a worse document for the same prompt, as preference learning takes them.

In the corpus they stand one after the other: documents 0 and 1 are a pair, 2 and 3 the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

from surefoot.data.packing import IGNORED
from surefoot.data.shards import Corpus
from surefoot.errors import DataError

CHOSEN, REJECTED = 0, 1
"""The rows of a pair."""
_PADDING = {"input_ids": 0, "labels": IGNORED}
Pair = dict[str, torch.Tensor]


class Pairs(Dataset[Pair]):
    """Sample `i` is a pair: `input_ids` and `labels` with two rows, the better document first.

    `marks` is a corpus of the same shape: an odd number stands for a token that bears loss. The shorter row ends in
    padding. `reference` holds the log-probabilities of each pair under the reference policy, if they are known.
    """

    draws_randomness = False

    def __init__(
        self, corpus: Corpus, marks: Corpus, reference: torch.Tensor | None = None, reference_digest: str = ""
    ) -> None:
        self.corpus, self.marks = corpus, marks
        self.reference, self.reference_digest = reference, reference_digest
        self._places = _places(corpus)
        if len(self._places) % 2:
            raise DataError(f"{corpus.folder} holds {len(self._places):,} documents, which are no pairs")
        if reference is not None and len(reference) != len(self):
            raise DataError(
                f"the reference of {corpus.folder} is of {len(reference):,} pairs, and it holds {len(self):,}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Pairs, (self.corpus, self.marks, self.reference, self.reference_digest)

    def __len__(self) -> int:
        return len(self._places) // 2

    def __getitem__(self, index: int) -> Pair:
        rows = [self._row(*place) for place in self._places[2 * index : 2 * index + 2].tolist()]
        pair = padded(rows)
        return pair if self.reference is None else {**pair, "reference": bits_of(self.reference[index])}

    def _row(self, shard: int, first: int, end: int) -> Pair:
        """The tokens of a document but the last, and for each the next one if that bears loss."""
        tokens = torch.from_numpy(self.corpus.tokens(shard, first, end - first).astype(np.int64))
        bears = torch.from_numpy((self.marks.tokens(shard, first, end - first) & 1).astype(bool))
        return {"input_ids": tokens[:-1], "labels": tokens[1:].masked_fill(~bears[1:], IGNORED)}

    def identity(self) -> str:
        """Identifies every token, every mark and the reference."""
        known = f", reference {self.reference_digest}" if self.reference is not None else ""
        return f"pairs of {self.corpus.identity()}, marked by {self.marks.identity()}{known}"


def bits_of(numbers: torch.Tensor) -> torch.Tensor:
    """The bits of numbers in float32. With precision=bf16-true, a step rounds the floats of a batch, and not these."""
    return numbers.float().view(torch.int32)


def numbers_of(bits: torch.Tensor) -> torch.Tensor:
    """The numbers that `bits_of` was given."""
    return bits.view(torch.float32)


def padded(samples: list[Pair]) -> Pair:
    """Pairs as one batch, as long as its longest row. Padding stands at the end and bears no loss."""
    longest = max(each["input_ids"].shape[-1] for each in samples)
    made = {}
    for name in samples[0]:
        tensors = [each[name] for each in samples]
        if name in _PADDING:
            tensors = [F.pad(each, (0, longest - each.shape[-1]), value=_PADDING[name]) for each in tensors]
        made[name] = torch.stack(tensors)
    return made


def _places(corpus: Corpus) -> np.ndarray:
    """Shard, first token and end of each document."""
    found = [np.zeros((0, 3), np.int64)]
    for shard in range(len(corpus.manifest.shards)):
        ends = corpus.ends(shard).astype(np.int64)
        found.append(np.stack([np.full_like(ends, shard), np.concatenate([[0], ends[:-1]]), ends], axis=1))
    return np.concatenate(found)
