"""The profile: what a few real steps of a recipe took."""

from dataclasses import dataclass

from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Usage


@dataclass(frozen=True)
class Profile:
    """A first and a steady step under the meters, then `timed_steps` steps under the clock alone."""

    recipe: str
    knobs: dict[str, str | int | float | bool | None]
    device: str
    parameters: int
    first: Usage
    steady: Usage
    timed_steps: int
    step_seconds: tuple[float, ...]
    clock: Tally
    allocated_peak_bytes: int | None = None
    """The peak of a steady step as torch's own allocator saw it, where it could be counted."""
    graph_breaks: tuple[str, ...] = ()
    """Where a compiled model fell back to Python, and why."""

    @property
    def tally(self) -> Tally:
        """Everything measured of one steady step: memory, FLOPs, tokens, and the mean seconds by phase."""
        seen = self.allocated_peak_bytes
        allocated = Tally() if seen is None else Tally((Account("allocated/peak", seen, "bytes"),))
        return self.steady.tally + self.clock + allocated
