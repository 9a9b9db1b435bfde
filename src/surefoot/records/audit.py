"""An audit: whether replayed steps made the same state."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Audit:
    """A replay of the steps after `from_step` up to `to_step`. `differing` names the parts of the state that differ."""

    run: str
    from_step: int
    to_step: int
    differing: tuple[str, ...]
