"""What an operator does: the FLOPs and the bytes from which its time follows on a device."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Calls of one operator in one place, all of the same size.

    `format` is the number format it computes in, such as `bf16`; `bytes_moved` what one call reads and writes at least.
    `shape` is that of a matrix product: how many, rows, columns, and the length of each sum; empty for others.
    Where blocks are alike, their number in `module` is a star.
    """

    phase: str
    module: str
    operator: str
    format: str
    flops: int
    bytes_moved: int
    shape: tuple[int, ...] = ()
    calls: int = 1
