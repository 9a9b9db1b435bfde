"""The time of a step: the total, by phase, by module, and by bottleneck."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Interval:
    """The seconds between which a step falls in four of five cases, and whose errors say so."""

    low_seconds: float
    high_seconds: float
    of: str


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step.

    `bounds` splits them by bottleneck: compute, memory, overhead, the host that launches kernels, and exposed
    communication. `flops_only_seconds` is FLOPs over the datasheet's peak, which no real step reaches. `interval` is
    None if no errors of like steps are known.
    """

    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    modules: dict[str, float] = field(default_factory=dict)
    flops_only_seconds: float = 0.0
    exposed: dict[str, float] = field(default_factory=dict)
    """Communication that no computation hides, by collective and mesh dimension."""
    assumptions: tuple[str, ...] = ()
    interval: Interval | None = None

    def times(self, factor: float) -> StepTime:
        """A step in which everything takes `factor` times as long. The time of FLOPs at the peak stays."""

        def longer(part: dict[str, float]) -> dict[str, float]:
            return {name: factor * seconds for name, seconds in part.items()}

        return replace(
            self,
            seconds=factor * self.seconds,
            phases=longer(self.phases),
            bounds=longer(self.bounds),
            modules=longer(self.modules),
            exposed=longer(self.exposed),
        )
