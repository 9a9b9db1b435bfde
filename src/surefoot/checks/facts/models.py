"""Models: parameters, modules, and what models do with a batch."""

from dataclasses import dataclass

LEAKS = 3e-5
"""If outputs that must stay the same differ by more than this share of their standard deviation, they changed. Rounding
stays below it.
"""


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
    """Its module ran in a forward with gradients on."""
    in_loss: bool | None = None
    """Disturbing it changes the inputs of the loss; None if that was not tried."""
    elements: int = 0
    follows: bool = False
    """It was written to between two updates of its optimizer, while other parameters of that optimizer were not."""
    penalized: bool = False
    """Only a penalty on its own values reaches it."""
    only_in: str = ""
    """The line of a loss that was computed from it but had no backward, if no other loss reaches it."""
    moved: bool = False
    """It changed although no backward reached it or no optimizer holds it: the script changed it by hand."""
    resting: bool = False
    """Its module ran in evaluation mode inside a model in training mode: it is frozen on purpose."""


@dataclass(slots=True)
class HiddenModule:
    """A module with parameters in a plain container of a model, where torch does not see it."""

    path: str
    kind: str
    parameters: int
    reached: bool
    optimized: bool


@dataclass(slots=True)
class Leaf:
    """A tensor that accumulates gradients and belongs to no model and no optimizer."""

    shape: tuple[int, ...]
    backwards: int
    path: str
    """The attribute of a model that holds it; empty if there is none, or if it is an input of a model."""
    fixed: bool = False
    """Its values have not changed since its first backward, and it is not an input of a model."""
    registered: str = ""
    """Its name as a parameter of a module that was never called as a model or as part of one."""


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
    still_norms: tuple[str, ...] = ()
    """BatchNorm layers that are trained, and that always ran in evaluation mode with the module around them."""
    fewest_per_channel: int | None = None
    few_in: str = ""
    lost_state: tuple[str, ...] = ()
    """Tensors that changed in training and that no state_dict contains."""
    unregistered: tuple[str, ...] = ()
    """Tensors that are neither parameters nor buffers."""
    faint: int = 0
    """The number of layers whose initial weights shrink their input to almost nothing."""
    loud: int = 0
    """The number of layers whose initial weights make their input several times larger."""
    far_off: tuple[str, ...] = ()
    """Layers whose initial weights make their input many times larger."""
    stuck: tuple[str, ...] = ()
    """Matrices that began as a constant and are stuck: they never changed, or their rows stay equal."""
    leaves_zero: bool = False
    """All constant matrices began as zero, and training made their rows differ."""
    coarse_positions: tuple[str, ...] = ()
    in_a_row: tuple[str, ...] = ()
    """Pairs of linear layers with nothing between them."""


@dataclass(slots=True)
class Crossing:
    """A dimension that is mistaken for another."""

    kind: str
    """Either "view" or "product"; for a softmax, "samples" or "alone"."""
    where: str
    seen: str


@dataclass(slots=True)
class Probe:
    """How a model reacted when its inputs were disturbed."""

    model: str
    where: str = ""
    counters: tuple[str, ...] = ()
    """Plain numbers that forwards change and outputs depend on."""
    drawn_tables: tuple[str, ...] = ()
    """Tensors that were drawn at random when the model was built, affect its outputs, and are in no state_dict."""
    idle_state: tuple[str, ...] = ()
    """Tensors that training changed, that no state_dict contains, and that no output depends on."""
    future: float = 0.0
    """The largest change of a logit caused by later tokens, in standard deviations."""
    past: float = 0.0
    present: float = 0.0
    """The same, caused only by the token at the position of the logit."""
    padding: float = 0.0
    hides_text: bool = False
    """A mask hides text instead of padding."""
    other_samples: float = 0.0
    drawn: bool = False
    """Its batches are known to consist of samples that were drawn one by one."""
    time_over_samples: str = ""
    """A recurrent or attention layer that treats the samples of a batch as time steps."""
    relational: bool = False
    """Inputs relate samples to each other, like the edges of a graph."""
    documents: float = 0.0
    ignores_input: bool = False
    ignores_text: bool = False
    """One of its text inputs has no effect."""
    constant_input: bool = False
    """Every input is the same number everywhere."""
    random_in_evaluation: str = ""
    """The dropout that stays active in evaluation mode."""
    softmax_over_batch: str = ""
    """The module whose softmax runs over the samples of a batch."""
    softmax_over_queries: str = ""
    """The module whose softmax runs over the rows of a square of scores instead of its columns."""
    repeats_evaluation: bool = False
    """The loop evaluates the same input repeatedly, as in Monte Carlo dropout."""


@dataclass(slots=True)
class Shadow:
    """A network that is built like a trained one: an average of its weights, a target, a teacher, a reference."""

    name: str
    source: str
    """The trained network."""
    aliased: bool = False
    """Both share their memory."""
    trained: bool = False
    """A loss trains it, too: an optimizer holds it, and a backward reaches it."""
    follows: bool = False
    """Its name says that it follows the other, as `ema` and `target` do."""
    copied: bool = False
    """Both had the same values when they were first seen."""
    same_inputs: bool = False
    """A tensor that entered it also entered the trained network with gradients on."""
    apart: int = 0
    """The number of updates after which they had different values."""
    never_changed: bool = False
    shares: tuple[float, ...] = ()
    """How far it moved towards the trained network, each time that it changed between two updates."""
    elsewhere: int = 0
    """How often it changed in another way."""
    pulls: int = 0
    """How often the trained network moved towards it between two updates, while it stayed."""
    calls: int = 0
    """The number of updates before which it was called, while both had different values."""
    used: bool = True
    """It was called, saved, or its values were used by another network; True if not all was seen."""
    raw: int = 0
    """How often the trained network was evaluated or saved with its own values, while the shadow had others."""
    stale_statistics: str = ""
    """A BatchNorm layer that was evaluated with its initial statistics, while those of the trained network moved."""


@dataclass(slots=True)
class FixedNetwork:
    """A network that runs in every step, in training mode, and is never changed."""

    name: str
    active: tuple[str, ...]
    """Dropout and BatchNorm layers that ran in training mode."""
    updates: int
    """The number of updates before which it ran."""


@dataclass(slots=True)
class IgnoredArgument:
    """An argument of a model or a loss that no output depends on."""

    called: str
    argument: str
    shape: tuple[int, ...]
    ways: int
    """The number of other values that were tried."""


@dataclass(slots=True)
class Adapter:
    """Two thin matrices beside a layer, whose product is added to the layer's weight, as in LoRA."""

    name: str
    model: str
    base_trained: bool
    """The layer's own weight was trained, too, and moved."""
    moved: bool
    """At least one of the matrices changed since its first forward, or it was not new, or cannot be read."""
    updates: int
    """The number of updates since then."""


@dataclass(slots=True)
class Merge:
    """A weight to which the product of an adapter was added."""

    name: str
    where: str
    trained_with: float
    """The factor of the product in the forward that was trained."""
    merged_with: float


@dataclass(slots=True)
class Tuning:
    """An optimizer that trains a model whose first weights were read from a folder, or adapters on any model."""

    optimizer: int
    model: str
    method: str
    """Either "adapters" or "all weights"."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """All facts of this subject."""

    parameters: tuple[Parameter, ...] = ()
    hidden_modules: tuple[HiddenModule, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    layouts: tuple[Layout, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    probes: tuple[Probe, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    fixed_networks: tuple[FixedNetwork, ...] = ()
    ignored_arguments: tuple[IgnoredArgument, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    merges: tuple[Merge, ...] = ()
    tunings: tuple[Tuning, ...] = ()
