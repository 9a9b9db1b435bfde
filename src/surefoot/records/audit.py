"""An audit: whether steps that were taken again made the same state."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Audit:
    """The steps after `from_step` up to `to_step`, and the names of what came out differently."""

    run: str
    from_step: int
    to_step: int
    differing: tuple[str, ...]
