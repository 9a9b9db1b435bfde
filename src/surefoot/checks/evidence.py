"""Evidence: what a witness saw of a few steps, and what probes found. Plain facts; checks are pure functions over them.

A witness fills records in as the loop goes on; checks only read them.
"""

from dataclasses import dataclass, field
from typing import Any

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
    """It was written to between two updates of an optimizer that holds it."""
    penalized: bool = False
    """Nothing but a penalty on its own values reaches it."""
    only_in: str = ""
    """The line of a loss that was computed from it and never back-propagated, if no other loss reaches it."""
    moved: bool = False
    """It changed although no backward reached it: somebody moved it by hand."""


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
    """The attribute of a model that holds it; empty where none does."""
    fixed: bool = False
    """Its values are what they were in its first backward, and no model is given it as an input."""


@dataclass(slots=True)
class Forward:
    """A forward of a model with gradients on."""

    model: str
    training: bool
    mode_dependent: tuple[str, ...]
    trained: bool = False
    """An optimizer that holds parameters of this model updated them afterwards."""
    backpropagated: bool = False
    builds_graph: bool = False
    input_graded: bool = False
    """An input asks for a gradient itself, as for a saliency map."""
    graph_kept: bool = False
    """Its graph was never back-propagated and still existed two updates or two evaluated batches later."""
    shapes: tuple[tuple[int, ...], ...] = ()
    batch: int = 0
    """A hash of the inputs; 0 where they were not read."""
    reseeded: bool = False
    """It began with the random state that the forward of the step before began with, and drew from it."""
    float16: bool = False
    """Computed in float16, by autocast or by its parameters."""
    bfloat16: bool = False
    overwritten: tuple[str, ...] = ()
    """Parameters whose values changed behind autograd's back before its backward."""
    wrote_input: bool = False
    late_backward: bool = False
    """Its own optimizer had already made an update when its backward came."""
    update: int = 0


@dataclass(slots=True)
class Evaluation:
    """A forward without gradients of a model."""

    model: str
    active: tuple[str, ...]
    """Dropout and BatchNorm layers that ran in training mode."""
    update: int
    """How many updates had been made before."""
    repeated: bool
    """The inputs are those of the forward before, and no update came between."""
    trained: bool = False
    samples: int = 0


@dataclass(slots=True)
class Shown:
    """The samples of a forward without gradients."""

    model: str
    update: int
    samples: int
    shared: int
    """Those that had been trained on before."""
    distinct: int
    names: bool
    """They consist of whole numbers, of which short ones repeat by chance."""


@dataclass(slots=True)
class Backward:
    """A call of backward: where, and what hangs on the loss."""

    where: str
    differentiable: bool
    """The loss has a graph behind it, or asks for a gradient itself."""
    reaches_optimized: bool
    """At least one parameter that an optimizer holds is in that graph."""
    followed_by_update: bool
    double_softmax: tuple[str, ...]
    """Modules whose softmax goes straight into a log-softmax."""
    nodes: int = 0
    old_nodes: int = 0
    """Those made before the last two updates."""
    repeated: bool = False
    """The same loss had been back-propagated since the last update."""
    shapes: tuple[Any, ...] = ()
    """The shapes of all model inputs since the backward before."""
    update: int = 0
    ascends: bool = False
    """The loss is the negative of a mean of squares or of absolute values."""
    in_update: bool = False
    """Made by a closure, inside an update."""
    site: int = 0
    """The very call, told apart from others on its line."""
    value: float | None = None
    """The loss; None where it was not read, or is not one number."""
    scale: float = 1.0
    """By which a gradient scaler had multiplied it."""
    optimizers: frozenset[int] = frozenset()
    """The numbers of the optimizers that hold something of what it reaches."""


@dataclass(slots=True)
class Update:
    """A call of an optimizer's step."""

    number: int
    optimizer: int
    where: str
    parameters: int
    carried: tuple[str, ...]
    """Parameters whose gradients still held what an earlier step had used."""
    with_gradient: int = 0
    all_zero: bool | None = None
    """Gradients exist and every element is zero; None where they were not read."""
    nonfinite: tuple[str, ...] = ()
    rate: float = 1.0
    """The largest learning rate of its groups."""
    planned_rate: float | None = None
    """The largest that a scheduler starts from; None where there is no scheduler."""
    moved: bool | None = None
    """Some parameter with a gradient changed; None where that was not looked at."""
    lost_share: float = 0.0
    """Of the half-precision elements with a gradient, the share that did not change."""
    half: str = ""
    """The dtype of those elements."""
    in_autocast: bool = False
    """One autocast region has been open since the update before."""
    anomaly: bool = False
    profiled: bool = False
    clipped_share: float = 0.0
    """Of the elements of its gradients, the share that was clipped after the last backward."""
    micro_batches: int = 0


@dataclass(slots=True)
class Optimizing:
    """An optimizer, and what it holds."""

    kind: str
    updates: int
    parameters: int
    frozen: int
    """Parameters without requires_grad, in the update in which the fewest had none."""
    foreign: tuple[str, ...]
    """Shapes of trainable parameters that no backward reached and no model that ran has."""
    reached: int
    maximizes: bool = False
    doubly_held: tuple[str, ...] = ()
    """Parameters that another optimizer updates in turns with this one."""


@dataclass(slots=True)
class Loss:
    """A call of one of torch's loss functions with gradients on."""

    function: str
    where: str
    reduction: str
    shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    update: int
    in_model: bool
    classes: int = 0
    value: float | None = None
    probabilities: bool = False
    """The input lies between 0 and 1 and sums to 1 over the classes."""
    log_probabilities: bool = True
    above: str = ""
    """The operation that made the input, views left out."""
    logits_from: str = ""
    """The same of what a log-softmax was given, where that made the input."""
    targets: int = 0
    valid: int = 0
    """Targets that are not ignored."""
    distinct: int = 0
    """Distinct valid targets."""
    constant: float | None = None
    counts: tuple[int, ...] = ()
    """How often each class occurs, where targets are one class per sample."""
    backward: int = -1
    """The number of the backward that came next."""
    weights: list[float] = field(default_factory=list)
    """The gradient of what was back-propagated with respect to this loss."""
    broadcast: tuple[int, ...] = ()
    """The shape that input and target were spread to, if it is larger than both."""
    layout_fault: str = ""
    cut: bool = False
    """None of the numbers of its input is below zero, and many are zero."""
    turned_target: bool = False
    """The probabilities it is given as a target sum to 1 over another dimension than those of its input."""
    site: int = 0
    of_outputs: bool = False
    """Of a distance: what it is given left a model as it is, or as a view of that."""
    target_print: int = 0
    """A hash of the targets; 0 where they were not read."""
    class_numbers: int = 0
    """Of a distance: how many classes its targets count, where they are one whole number per sample from 0 on."""


@dataclass(slots=True)
class Aim:
    """Which way a backward pushed a prediction, beside a target it was compared with; `Signature` says what is what."""

    model: str
    update: int
    backward: int
    kind: str
    sign: int
    values: str
    above: str
    """The operation that made the prediction, views left out."""
    cut: bool = False
    """None of its numbers is below zero, and many are zero."""
    targets: int = 0
    constant: float | None = None
    class_numbers: int = 0
    even: bool = True
    excess: float = 0.0


@dataclass(slots=True)
class Term:
    """A number that was made from parameters and added, without a gradient, to what was back-propagated."""

    where: str
    value: float


@dataclass(slots=True)
class Discard:
    """Backwards of one line whose gradients were cleared before any update used them, and those that were used."""

    where: str
    discarded: int
    used: int


@dataclass(slots=True)
class Clip:
    """A call of gradient clipping."""

    where: str
    parameters: int
    with_gradient: int
    used_already: bool
    """The gradients are those that the last update has used."""
    scaled: bool
    """They are still multiplied by a scaler's scale."""
    optimized: bool
    """At least one of the parameters is held by an optimizer."""
    unlimited: bool
    """The limit is infinite: the call only measures."""


@dataclass(slots=True)
class Schedule:
    """A scheduler of learning rates."""

    kind: str
    where: str
    calls: int
    updates: int
    """Of its own optimizer."""
    before_first_update: bool
    between_updates: int
    """The most calls between two updates."""
    horizon: int | None
    """After so many calls it is at its end."""
    turns: bool
    """Behind its horizon the rate rises again."""
    epoch: int | None
    """Batches in one pass over the training loader."""
    passes: int
    """Over the training loader, so far."""
    share_after_epoch: float | None
    """What is left of the rate after one pass, at the calls seen per update."""
    others_updated: int
    """Updates by other optimizers."""
    replaced: bool = False
    """Another optimizer updates what its own one holds."""
    rates: tuple[float, ...] = ()
    """The largest learning rate of its optimizer's groups in every update."""
    ended: bool = False
    """The script has run to its end."""
    optimizer: int = -1
    """The number of its optimizer."""


@dataclass(slots=True)
class Loader:
    """A DataLoader that was iterated."""

    kind: str
    role: str
    """training, evaluation or unknown"""
    passes: int
    batches: int | None
    shuffled: bool
    drops_last: bool
    workers: int
    keeps_workers: bool = False
    same_epoch: bool = False
    """A sampler that shuffles by epoch was never told of a new one."""
    same_first_batch: bool = False
    """Every pass began with the same batch, although it shuffles."""
    leftover: int = 0
    """Backwards whose gradients no update had used when a pass ended."""
    window: int = 1
    """Backwards per update."""
    updates_of_a_batch: int = 0
    """The most updates in a row that used a batch of it, before any loader handed out another."""
    random_inputs: bool = False
    """The same batch entered a model with other values in another pass."""


@dataclass(slots=True)
class Samples:
    """What a probe found about the data set behind a training loader."""

    where: str
    alike_workers: bool = False
    """Every worker draws the same random numbers."""
    alike_epochs: bool = False
    """Every epoch draws the same random numbers."""
    whole_stream: bool = False
    """Every worker yields the whole stream."""
    changed_by_reading: str = ""
    """The attribute that reading a sample changed."""
    random_in_evaluation: bool = False
    """Evaluation reads the same data set or one of its kind, and its samples are random."""
    redrawn_labels: int = 0
    """So many samples of a few came with another label when they were read again, with the same inputs."""
    turned_alone: bool = False
    """Pictures are turned anew with every reading, and a map of the same size that comes with them is not."""
    collated_apart: bool = False
    """Joined into a batch, values of samples stand beside those of others."""
    label_shift: int = 0
    """Labels depend on the inputs so many samples away, and not on their own."""
    labels_in_order: bool = False
    """Labels depend on their place among the samples, and inputs depend neither on theirs nor on labels."""
    unlike_evaluation: bool = False
    """Labels depend on the inputs in evaluation, and not in training."""
    shared_with_evaluation: float = 0.0
    """The share of evaluation samples that occur in training."""
    commonest_label: float | None = None
    """The share of the label that most samples have; None where samples have no labels."""
    sorted_labels: int = 0
    """The number of classes in a data set that is read in the order of its labels."""


@dataclass(slots=True)
class Parted:
    """Samples that were trained with targets of others, in step after step."""

    where: str
    seen: str


@dataclass(slots=True)
class Inputs:
    """Statistics of what entered a model's first layer."""

    model: str
    layer: str
    shape: tuple[int, ...]
    lowest: float
    highest: float
    whole: bool
    """All are whole numbers."""
    image: bool
    zero_interleaved: bool = False
    """Every second token is zero, and only those."""
    size: float = 0.0
    """The root mean square of the feature that has the largest."""


@dataclass(slots=True)
class Sequence:
    """How the targets of a token model lie beside its inputs."""

    model: str
    where: str
    shift: int | None
    """The offset at which targets equal inputs; None where there is none."""
    match: float
    tokens: int
    ends_ignored: int | None = None
    """An end token that inputs hold and no valid target does."""
    padding_counted: int = 0
    """Valid targets at padded positions."""
    padding_seen_by: str = ""
    """How padding was told from text: a mask, or a trailing run of one token."""


@dataclass(slots=True)
class Probe:
    """What a model did when its inputs were disturbed."""

    model: str
    where: str = ""
    future: float = 0.0
    """The largest change of a logit by later tokens, in standard deviations."""
    past: float = 0.0
    padding: float = 0.0
    hides_text: bool = False
    """A mask leaves out text in place of padding."""
    other_samples: float = 0.0
    time_over_samples: str = ""
    """A recurrent or attention layer that takes the samples of a batch for its time."""
    relational: bool = False
    """Inputs relate samples to each other, as a graph's edges do."""
    documents: float = 0.0
    ignores_input: bool = False
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
    far_off: tuple[str, ...] = ()
    """Layers whose first weights make what they are given many times as large."""
    stuck: tuple[str, ...] = ()
    """Matrices that began as one number and that training cannot tell apart: unmoved, or with rows that stay alike."""
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
class Coarse:
    """Numbers kept in a dtype that cannot hold them."""

    kind: str
    """positions, sum or mask"""
    where: str
    dtype: str
    value: float


@dataclass(slots=True)
class Threshold:
    """A comparison with one half, without gradients, of numbers beyond 0 and 1, or of what a model returns as it is."""

    where: str
    lowest: float
    highest: float


@dataclass(slots=True)
class Metric:
    """A number that an evaluation makes of its batches."""

    kind: str
    """last, of which only the last batch's is kept, or mean, to which all count alike"""
    name: str
    where: str
    batches: int


@dataclass(slots=True)
class Scaling:
    """A gradient scaler at work."""

    attempts: int
    skipped: int
    with_bfloat16: bool
    skipped_late: int = 0
    """Of those, the ones after the first update that was made."""


@dataclass(slots=True)
class File:
    """A saved or loaded state."""

    kind: str
    """loose-load, alias, module, unrestored-optimizer, unrestored-scheduler, without-optimizer or without-buffers"""
    where: str
    matched: int = 0
    wanted: int = 0
    found: int = 0
    detail: str = ""


@dataclass(slots=True)
class Resumption:
    """A counter in a file that training went on from."""

    where: str
    counter: str
    loaded: int
    saved: int | None = None
    """What the next file says, and what it would say if every update since had been counted once."""
    expected: int | None = None
    in_epoch: int = 0
    """Updates of an unfinished pass over the data, by a counter of updates."""
    skipped: int = 0
    """Batches that were passed over before the first forward."""


@dataclass(slots=True)
class SharedFile:
    """A file that several ranks have written, or that holds the shards of one rank alone."""

    path: str
    where: str
    writers: int
    ranks: int
    shards: bool
    """What was saved is this rank's share of something larger."""


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


@dataclass(slots=True)
class Ranks:
    """What several ranks saw of the same steps."""

    count: int
    same_samples: float = 0.0
    """The share of samples that two ranks both saw."""
    same_answers: bool = False
    """In every loss the ranks had the same targets, and not the same in all losses."""
    same_places: float = 0.0
    """Of one pass over the data, the share of samples that another rank's pass reads, too."""
    diverged: tuple[str, ...] = ()
    bypassed: bool = False
    """The model under the wrapper was called, and not the wrapper."""
    same_randomness: bool = False
    local_norms: tuple[float, ...] = ()
    syncs_per_update: float = 0.0
    micro_batches: float = 0.0
    never_synced: bool = False
    target_counts: tuple[int, ...] = ()
    batch_counts: tuple[int, ...] = ()
    reduced_again: str = ""
    wrapped: bool = False
    scaled_by_count: str = ""
    """The line in which a loss was multiplied or divided by the number of ranks."""
    mean_weight: float | None = None
    """What the mean over all targets of all ranks counts with; None where ranks have as many targets, or it varies."""
    untold_metrics: bool = False
    """Each rank evaluated samples of its own, and none was told what others had found."""
    last_unsynced: float = 0.0
    """The share of updates in which gradients were exchanged, and not in the last micro-batch."""
    ratios_to_mean: tuple[float, ...] = ()
    """For some updates, how many times the mean over ranks their gradients were, before clipping."""


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
    reductions: tuple[Loss, ...] = ()
    """Means and sums to one number that losses are made of by hand."""
    terms: tuple[Term, ...] = ()
    flat_lines: tuple[str, ...] = ()
    """Lines of the loss that round, or take the sign of, what is back-propagated."""
    discards: tuple[Discard, ...] = ()
    clips: tuple[Clip, ...] = ()
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
    parted: tuple[Parted, ...] = ()
    shown: tuple[Shown, ...] = ()
    part_of: int = 0
    """The rows of an array of which one batch is used over and over; 0 where none is."""
    reseeded_updates: int = 0
    """Updates that drew the same random numbers as the one before."""
    unseeded_generators: tuple[str, ...] = ()
    """Global generators that the loop draws from and never seeds, while it seeds torch's."""
    benchmarks_kernels: bool = False
    """cuDNN chooses kernels by their speed, in a run that asks for deterministic ones."""
    idle_accelerator: str = ""
    """A device that this machine has, while every parameter lies on the CPU."""
    resumptions: tuple[Resumption, ...] = ()
    shared_files: tuple[SharedFile, ...] = ()
    weights_by_hand: bool = False
    """Parameters changed although no optimizer made an update."""
    ended: bool = False
    """The script has run to its end."""
