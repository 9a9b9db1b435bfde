"""The time of a step: in all, by phase, by module, and by what bounds it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step.

    `bounds` says what they are spent waiting for: compute, memory, overhead, and communication that nothing hides.
    `flops_only_seconds` is what FLOPs over the datasheet's peak would give: the time of a step that nobody has seen.
    """

    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    modules: dict[str, float] = field(default_factory=dict)
    flops_only_seconds: float = 0.0
    exposed: dict[str, float] = field(default_factory=dict)
    """Communication that no computation hides, by collective and mesh dimension."""
    assumptions: tuple[str, ...] = ()
