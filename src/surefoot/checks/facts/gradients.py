"""Gradients: graphs, backward passes, and what was lost on the way."""

from dataclasses import dataclass


@dataclass(slots=True)
class Discard:
    """Backwards of one line whose gradients were cleared before any update used them, and those that were used."""

    where: str
    discarded: int
    used: int


@dataclass(slots=True)
class Recomputation:
    """A module that gave something else when its forward was run again in backward."""

    module: str
    difference: float


@dataclass(slots=True)
class Derivative:
    """A function with a backward of its own, and how that compares with differences of its forward."""

    function: str
    share: float
    """Of the change that small steps of the inputs make, the share that backward tells; 1 if it is right."""


@dataclass(frozen=True, slots=True)
class GradientFacts:
    """All facts of this subject."""

    discards: tuple[Discard, ...] = ()
    drawn_without_gradient: tuple[str, ...] = ()
    """Lines that draw from a model's distribution without its gradient what the loss is then made from."""
    recomputations: tuple[Recomputation, ...] = ()
    kept_graphs: int = 0
    """Back-propagated graphs of steps long past that still exist."""
    written_through_data: tuple[str, ...] = ()
    """Lines that write to a tensor of a graph through its `.data`, before that graph is back-propagated."""
    derivatives: tuple[Derivative, ...] = ()
    derivatives_in_losses: bool = False
    """Gradients were asked for with a graph, to be a part of a loss."""
