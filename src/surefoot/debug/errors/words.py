"""Words for shapes and values in sentences of causes."""

from __future__ import annotations

from surefoot.records.explanation import Met


def shape(sizes: tuple[int, ...] | None) -> str:
    return "unknown" if sizes is None else f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def of(met: Met) -> str:
    """A value with its shape: `x` (16, 24)."""
    return f"`{met.name}` {shape(met.shape)}"
