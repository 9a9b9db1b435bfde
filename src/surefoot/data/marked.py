"""Marked documents: packed documents of which only marked tokens bear loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from surefoot.data.packing import IGNORED, Packed, PackedDocuments
from surefoot.data.shards import Corpus
from surefoot.errors import DataError


class MarkedDocuments(PackedDocuments):
    """Rows of whole documents. The target of a token without loss is `IGNORED`.

    `marks` is a corpus of the same shape: an odd number stands for a token that bears loss.
    """

    counts_all = False

    def __init__(self, corpus: Corpus, marks: Corpus, context: int, tell: Callable[[int], None] | None = None) -> None:
        shapes = [[(each.tokens, each.documents, each.part) for each in one.manifest.shards] for one in (corpus, marks)]
        if shapes[0] != shapes[1]:
            raise DataError(f"{marks.folder} does not belong to {corpus.folder}: its shards have other sizes")
        super().__init__(corpus, context, tell)
        self.marks = marks

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedDocuments, (self.corpus, self.marks, self.context)

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> Packed:
        tokens, targets, positions, documents = super().__getitems__(indices)
        for row, index in enumerate(indices):
            at = 0
            for shard, count, first in self.pieces(int(index)):
                bears = torch.from_numpy((self.marks.tokens(shard, first, count + 1)[1:] & 1).astype(bool))
                targets[row, at : at + count].masked_fill_(~bears, IGNORED)
                at += count
        return tokens, targets, positions, documents

    def identity(self) -> str:
        """Identifies every token, every mark and the packing."""
        return f"{super().identity()}, marked by {self.marks.identity()}"
