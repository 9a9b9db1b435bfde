"""Plans of one script with different arguments, side by side."""

from dataclasses import dataclass

from surefoot.records.plan import Plan


@dataclass(frozen=True)
class Tried:
    """A script with some arguments: its plan, or why there is none."""

    arguments: str
    plan: Plan | None = None
    why: str = ""

    @property
    def fits(self) -> bool:
        """Whether it has a plan, and that fits."""
        return self.plan is not None and (self.plan.fit is None or self.plan.fit.fits)

    @property
    def seconds_per_unit(self) -> float:
        """Seconds for one token or sample; infinite if it is not known."""
        if self.plan is None or self.plan.time is None or not self.plan.tokens_per_step:
            return float("inf")
        return self.plan.time.seconds / self.plan.tokens_per_step


@dataclass(frozen=True)
class Tries:
    """All that was tried, best first: what fits, then the fastest."""

    script: str
    on: str
    tried: tuple[Tried, ...]
