"""Windows: a corpus as one stream of tokens, cut every `context` tokens, regardless of documents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from surefoot.data.shards import Corpus, Rows
from surefoot.errors import DataError

Window = tuple[torch.Tensor, torch.Tensor]


class TokenWindows(Dataset[Window]):
    """Sample `i` is `context` tokens, and the same shifted by one as targets.

    Windows follow each other without a gap inside a shard. The last tokens of a shard that do not fill a window are
    skipped. A batch is one copy from the page cache: it needs no worker process and no state.
    """

    draws_randomness = False

    def __init__(self, corpus: Corpus, context: int) -> None:
        self.corpus, self.context = corpus, context
        counts = [max(shard.tokens - 1, 0) // context for shard in corpus.manifest.shards]
        self.starts = [0, *accumulate(counts)]
        if not len(self):
            raise DataError(
                f"{corpus.folder} holds {corpus.manifest.tokens:,} tokens in {len(counts):,} shards, none of which "
                f"holds a window of {context + 1:,}; name a smaller context, or a corpus with more text"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenWindows, (self.corpus, self.context)

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int) -> Window:
        tokens, targets = self.__getitems__([index])
        return tokens[0], targets[0]

    @cached_property
    def _rows(self) -> Rows | None:
        """The tokens as rows, if the corpus is mapped and has only one shard."""
        one = len(self.starts) == 2 and self.corpus.mapped
        return self.corpus.rows(0, self.context, self.context + 1) if one else None

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> Window:
        if self._rows is not None:
            window = self._rows[np.asarray(indices)].astype(np.int64)
        else:
            window = np.empty((len(indices), self.context + 1), np.int64)
            for place, (shard, row) in enumerate(self._places(indices)):
                window[place] = self.corpus.tokens(shard, row * self.context, self.context + 1)
        batch, shape, strides = torch.from_numpy(window), (len(window), self.context), (self.context + 1, 1)
        return batch.as_strided(shape, strides), batch.as_strided(shape, strides, 1)  # faster than slices

    def will_need(self, indices: Sequence[int] | np.ndarray) -> None:
        """Asks the kernel to read these windows ahead."""
        for shard, row in self._places(indices):
            self.corpus.advise(shard, row * self.context, self.context + 1)

    def identity(self) -> str:
        """Identifies every token and the size of windows."""
        return f"windows of {self.context} from {self.corpus.identity()}"

    def _places(self, indices: Sequence[int] | np.ndarray) -> Iterator[tuple[int, int]]:
        """The shard of each sample, and its window in the shard."""
        starts = self.starts
        for index in np.asarray(indices).tolist():
            shard = bisect_right(starts, index) - 1
            yield shard, index - starts[shard]
