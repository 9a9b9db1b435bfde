"""Evidence: what a witness saw of a few steps, and what probes found. Plain facts; checks are pure functions over them.

A witness fills records in as the loop goes on; checks only read them.
"""

from dataclasses import dataclass

from surefoot.checks.facts.loop import (
    Backward,
    Clip,
    Discard,
    Evaluation,
    Forward,
    Optimizing,
    Scaling,
    Schedule,
    Update,
)
from surefoot.checks.facts.losses import Aim, Likelihood, Loss, Metric, Term, Threshold
from surefoot.checks.facts.models import (
    LEAKS,
    Coarse,
    Crossing,
    Derivative,
    HiddenModule,
    Layout,
    Leaf,
    Parameter,
    Probe,
    Recomputation,
    Sequence,
)
from surefoot.checks.facts.samples import Inputs, Loader, NarrowTokens, Parted, Pass, Samples, Shown
from surefoot.checks.facts.saved_state import File, HeldCounter, LostState, Ranks, Resumption, SharedFile

__all__ = [
    "LEAKS",
    "Aim",
    "Backward",
    "Clip",
    "Coarse",
    "Crossing",
    "Derivative",
    "Discard",
    "Evaluation",
    "Evidence",
    "File",
    "Forward",
    "HeldCounter",
    "HiddenModule",
    "Inputs",
    "Layout",
    "Leaf",
    "Likelihood",
    "Loader",
    "Loss",
    "LostState",
    "Metric",
    "NarrowTokens",
    "Optimizing",
    "Parameter",
    "Parted",
    "Pass",
    "Probe",
    "Ranks",
    "Recomputation",
    "Resumption",
    "Samples",
    "Scaling",
    "Schedule",
    "Sequence",
    "SharedFile",
    "Shown",
    "Term",
    "Threshold",
    "Update",
]


@dataclass(slots=True)
class Evidence:
    """All of it."""

    parameters: tuple[Parameter, ...] = ()
    hidden_modules: tuple[HiddenModule, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    forwards: tuple[Forward, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    backwards: tuple[Backward, ...] = ()
    updates: tuple[Update, ...] = ()
    optimizers: tuple[Optimizing, ...] = ()
    losses: tuple[Loss, ...] = ()
    aims: tuple[Aim, ...] = ()
    likelihoods: tuple[Likelihood, ...] = ()
    reductions: tuple[Loss, ...] = ()
    """Means and sums to one number that losses are made of by hand."""
    terms: tuple[Term, ...] = ()
    flat_lines: tuple[str, ...] = ()
    """Lines of the loss that round, or take the sign of, what is back-propagated."""
    emptied_lines: tuple[str, ...] = ()
    """Lines of the loss that multiply it by a mask of zeros, or pick none of it, whenever they run."""
    lenient_masks: tuple[str, ...] = ()
    """Lines that set scores of padding to zero or near it, before a softmax."""
    discards: tuple[Discard, ...] = ()
    clips: tuple[Clip, ...] = ()
    drawn_without_gradient: tuple[str, ...] = ()
    """Lines that draw from a model's distribution without its gradient what the loss is then made from."""
    carried_by_hand: int = 0
    """Weights were moved without an optimizer so often, and the gradients that moved them then added to."""
    unused_limits: tuple[str, ...] = ()
    """Lines that limit gradients, or copies of them, into tensors that nothing uses."""
    schedules: tuple[Schedule, ...] = ()
    loaders: tuple[Loader, ...] = ()
    samples: tuple[Samples, ...] = ()
    inputs: tuple[Inputs, ...] = ()
    sequences: tuple[Sequence, ...] = ()
    probes: tuple[Probe, ...] = ()
    layouts: tuple[Layout, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    coarse: tuple[Coarse, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    metrics: tuple[Metric, ...] = ()
    scaling: Scaling | None = None
    files: tuple[File, ...] = ()
    recomputations: tuple[Recomputation, ...] = ()
    ranks: Ranks | None = None
    kept_graphs: int = 0
    """Back-propagated graphs of steps long past that still exist."""
    written_through_data: tuple[str, ...] = ()
    """Lines that write to a tensor of a graph through its `.data`, before that graph is back-propagated."""
    derivatives: tuple[Derivative, ...] = ()
    derivatives_in_losses: bool = False
    """Gradients were asked for with a graph, to be a part of a loss."""
    parted: tuple[Parted, ...] = ()
    ordered_apart: tuple[Parted, ...] = ()
    """Arrays that were made together, of which the source orders one anew and not the other."""
    reorders: bool = True
    """The source puts something into another order; true where it cannot be read."""
    rising_targets: tuple[tuple[str, int], ...] = ()
    """Lines of losses whose targets lie above those of the batch before, while no input does: for so many batches."""
    shown: tuple[Shown, ...] = ()
    passes: tuple[Pass, ...] = ()
    narrow_tokens: tuple[NarrowTokens, ...] = ()
    part_of: int = 0
    """The rows of an array of which one batch is used over and over; 0 where none is."""
    shuffled_once: int = 0
    """The rows of an array that all passes go through in one order, which is not theirs; 0 where none does."""
    reseeded_updates: int = 0
    """Updates that drew the same random numbers as the one before."""
    unseeded_generators: tuple[str, ...] = ()
    """Global generators that the loop draws from and never seeds, while it seeds torch's."""
    benchmarks_kernels: bool = False
    """cuDNN chooses kernels by their speed, in a run that asks for deterministic ones."""
    idle_accelerator: str = ""
    """A device that this machine has, while every parameter lies on the CPU."""
    lost_attributes: tuple[str, ...] = ()
    """Attributes of a model that changed, that its loss depends on, and that no checkpoint holds."""
    unstable_samples: tuple[int, int] = (0, 0)
    """So many samples changed when they were read again with the same random numbers, of so many."""
    resumptions: tuple[Resumption, ...] = ()
    held_counters: tuple[HeldCounter, ...] = ()
    lost_states: tuple[LostState, ...] = ()
    shared_files: tuple[SharedFile, ...] = ()
    weights_by_hand: bool = False
    """Parameters changed although no optimizer made an update."""
    ended: bool = False
    """The script has run to its end."""
