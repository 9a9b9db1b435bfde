"""Gradients: graphs, backward passes, and what was lost on the way."""

from dataclasses import dataclass


@dataclass(slots=True)
class Discard:
    """Backwards at one line: how many had gradients that were cleared before an update, and how many were used."""

    where: str
    discarded: int
    used: int


@dataclass(slots=True)
class Recomputation:
    """A module whose forward returned something else when it was recomputed in backward."""

    module: str
    difference: float


@dataclass(slots=True)
class Derivative:
    """A function with a custom backward, compared with finite differences of its forward."""

    function: str
    share: float
    """The share of the change from small input steps that backward predicts; 1 if it is right."""


@dataclass(frozen=True, slots=True)
class GradientFacts:
    """All facts of this subject."""

    discards: tuple[Discard, ...] = ()
    drawn_without_gradient: tuple[str, ...] = ()
    """Lines that draw a sample from a model's distribution without gradient; the loss is computed from it."""
    recomputations: tuple[Recomputation, ...] = ()
    kept_graphs: int = 0
    """Graphs of much earlier steps that still exist after their backward."""
    written_through_data: tuple[str, ...] = ()
    """Lines that write to a tensor of a graph through `.data` before its backward."""
    derivatives: tuple[Derivative, ...] = ()
    derivatives_in_losses: bool = False
    """Gradients were computed with a graph, as part of a loss."""
