"""The work of an operator: the FLOPs and bytes that determine its time on a device."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Calls of one operator in one place, all of the same size.

    `format` is the number format it computes in, for example `bf16`. `bytes_moved` is the least that one call reads and
    writes. `shape` is that of a matrix product: batch, rows, columns, inner dimension; empty for other operators.
    If blocks are alike, a star replaces their number in `module`.
    """

    phase: str
    module: str
    operator: str
    format: str
    flops: int
    bytes_moved: int
    shape: tuple[int, ...] = ()
    calls: int = 1
