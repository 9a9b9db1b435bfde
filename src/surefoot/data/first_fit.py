"""First fit: packs pieces of documents into rows of equal length, with little padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

OPEN_ROWS = 256
Piece = tuple[int, int, int]
"""Shard, number of targets, first token."""


def first_fit(pieces: Iterator[Piece], context: int, *, open_rows: int = OPEN_ROWS) -> Iterator[list[Piece]]:
    """Rows of at most `context` tokens. Each piece goes to the first open row with enough room.

    `open_rows` rows are open at a time. When none has room, the fullest is closed.
    """
    free = np.full(open_rows, context)
    rows: list[list[Piece]] = [[] for _ in range(open_rows)]
    for piece in pieces:
        row = int((free >= piece[1]).argmax())
        if free[row] < piece[1]:
            row = int(free.argmin())
            yield rows[row]
            rows[row], free[row] = [], context
        rows[row].append(piece)
        free[row] -= piece[1]
    yield from filter(None, rows)
