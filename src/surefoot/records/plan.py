"""The plan: what a recipe's step will take, computed without taking it."""

from dataclasses import dataclass, field

from surefoot.records.usage import Usage


@dataclass(frozen=True)
class Plan:
    """Two symbolic steps of a recipe: the first, in which the optimizer makes its state, and a steady one."""

    recipe: str
    about: str
    knobs: dict[str, str | int | float | bool | None]
    parameters: int
    tokens_per_step: int
    micro_batches: int
    steps: int | None
    first: Usage = Usage()
    steady: Usage = Usage()
    assumptions: tuple[str, ...] = field(default=())
