"""Models: parameters, modules, and what models do with a batch."""

from dataclasses import dataclass

LEAKS = 3e-5
"""Outputs that must not change do so, if by more than this share of their standard deviation; rounding is less."""


@dataclass(slots=True)
class Parameter:
    """A parameter of a model that ran."""

    name: str
    model: str
    trainable: bool
    reached: bool
    """A backward put a gradient into it."""
    optimized: bool
    """An optimizer holds it."""
    executed: bool = False
    """Its module ran in a forward of its model that was called with gradients on."""
    in_loss: bool | None = None
    """Disturbing it changes what the loss was made from; None where that was not tried."""
    elements: int = 0
    follows: bool = False
    """It was written to between two updates of an optimizer that holds it, and others of that optimizer were not."""
    penalized: bool = False
    """Nothing but a penalty on its own values reaches it."""
    only_in: str = ""
    """The line of a loss that was computed from it and never back-propagated, if no other loss reaches it."""
    moved: bool = False
    """It changed although no backward reached it or no optimizer holds it: somebody moved it by hand."""
    resting: bool = False
    """Its module ran in evaluation mode inside of a model in training mode: it is not to learn."""


@dataclass(slots=True)
class HiddenModule:
    """A module with parameters that sits in a plain container of a model, where torch does not see it."""

    path: str
    kind: str
    parameters: int
    reached: bool
    optimized: bool


@dataclass(slots=True)
class Leaf:
    """A tensor that collects gradients and belongs to no model and no optimizer."""

    shape: tuple[int, ...]
    backwards: int
    path: str
    """The attribute of a model that holds it; empty where none does, and where a model is given it as an input."""
    fixed: bool = False
    """Its values are what they were in its first backward, and no model is given it as an input."""


@dataclass(slots=True)
class Layout:
    """Facts about how a model is built."""

    model: str
    repeated_layers: tuple[str, ...] = ()
    copied_ties: tuple[str, ...] = ()
    alike_rows: tuple[str, ...] = ()
    matrices: int = 0
    constant_matrices: int = 0
    running_frozen: tuple[str, ...] = ()
    """BatchNorm layers with frozen parameters whose statistics were updated."""
    fewest_per_channel: int | None = None
    few_in: str = ""
    lost_state: tuple[str, ...] = ()
    """Tensors that changed in training and that no state_dict saves."""
    unregistered: tuple[str, ...] = ()
    """Tensors that are neither parameters nor buffers."""
    faint: int = 0
    """Layers whose first weights make next to nothing of what they are given."""
    loud: int = 0
    """Layers whose first weights make it several times as large."""
    far_off: tuple[str, ...] = ()
    """Layers whose first weights make what they are given many times as large."""
    stuck: tuple[str, ...] = ()
    """Matrices that began as one number and that training cannot tell apart: unmoved, or with rows that stay alike."""
    leaves_zero: bool = False
    """All matrices that began as one number began as zero, and training has told their rows apart."""
    coarse_positions: tuple[str, ...] = ()
    in_a_row: tuple[str, ...] = ()
    """Pairs of linear layers, the second of which is given what the first returns."""


@dataclass(slots=True)
class Crossing:
    """Dimensions that are taken for others."""

    kind: str
    """view or product; samples or alone, of a softmax"""
    where: str
    seen: str


@dataclass(slots=True)
class Probe:
    """What a model did when its inputs were disturbed."""

    model: str
    where: str = ""
    counters: tuple[str, ...] = ()
    """Plain numbers that its forwards change, and on which its outputs depend."""
    drawn_tables: tuple[str, ...] = ()
    """Tensors that were drawn when the model was built, that its outputs depend on and no state_dict holds."""
    idle_state: tuple[str, ...] = ()
    """Of the tensors that training changed and no state_dict holds, those that no output depends on."""
    future: float = 0.0
    """The largest change of a logit by later tokens, in standard deviations."""
    past: float = 0.0
    present: float = 0.0
    """The same by the tokens that stand beside the logits alone."""
    padding: float = 0.0
    hides_text: bool = False
    """A mask leaves out text in place of padding."""
    other_samples: float = 0.0
    drawn: bool = False
    """Its batches are known to be samples that were drawn one by one."""
    time_over_samples: str = ""
    """A recurrent or attention layer that takes the samples of a batch for its time."""
    relational: bool = False
    """Inputs relate samples to each other, as a graph's edges do."""
    documents: float = 0.0
    ignores_input: bool = False
    ignores_text: bool = False
    """One of the texts that it looks up changes nothing."""
    constant_input: bool = False
    """Every input is one number over and over."""
    random_in_evaluation: str = ""
    """The dropout that stays on in evaluation mode."""
    softmax_over_batch: str = ""
    """The module whose softmax runs over the samples of a batch."""
    softmax_over_queries: str = ""
    """The module whose softmax runs over the rows of a square of scores, and not over its columns."""
    repeats_evaluation: bool = False
    """The loop itself evaluates the same input repeatedly, as Monte Carlo dropout does."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """All facts of this subject."""

    parameters: tuple[Parameter, ...] = ()
    hidden_modules: tuple[HiddenModule, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    layouts: tuple[Layout, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    probes: tuple[Probe, ...] = ()
