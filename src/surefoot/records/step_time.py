"""The time of a step: the total, by phase, by module, and by bottleneck."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step.

    `bounds` splits them by bottleneck: compute, memory, overhead, and exposed communication. `flops_only_seconds` is
    FLOPs over the datasheet's peak, which no real step reaches.
    """

    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    modules: dict[str, float] = field(default_factory=dict)
    flops_only_seconds: float = 0.0
    exposed: dict[str, float] = field(default_factory=dict)
    """Communication that no computation hides, by collective and mesh dimension."""
    assumptions: tuple[str, ...] = ()
