"""Samples: loaders, data sets, and what of them enters models."""

from dataclasses import dataclass

from surefoot.checks.facts.models import Crossing


@dataclass(slots=True)
class Loader:
    """A DataLoader that was iterated."""

    kind: str
    role: str
    """One of "training", "evaluation" or "unknown"."""
    passes: int
    batches: int | None
    drops_last: bool
    workers: int
    keeps_workers: bool = False
    same_epoch: bool = False
    """Its sampler shuffles by epoch, but `set_epoch` never got a new epoch."""
    same_first_batch: bool = False
    """Every pass began with the same samples, although it shuffles."""
    order_again: str = ""
    """How its order repeats that of an earlier loader over the same samples; empty if it does not."""
    told_twice: bool = False
    """Two workers returned the same samples of a stream."""
    leftover: int = 0
    """Backwards whose gradients were still unused when a pass ended."""
    window: int = 1
    """Backwards per update."""
    updates_of_a_batch: int = 0
    """The most updates in a row on one of its batches, before any loader returned another batch."""
    worked_through: bool = False
    """Updates followed most of its batches, and several updates came in one pass."""
    out_of_order: bool = False
    """Its sampler shuffles, or lists indices that do not rise."""
    random_inputs: bool = False
    """The same batch had different values when it entered a model in another pass."""


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
    """Evaluation reads the same data set, or one of the same class, and its samples are random."""
    redrawn_labels: int = 0
    """Of the samples read twice, how many had the same inputs but another label."""
    turned_alone: bool = False
    """Images are transformed at random on every read, but a map of the same size that belongs to them is not."""
    collated_apart: bool = False
    """The collate function puts values of one sample next to values of another."""
    label_shift: int = 0
    """Labels depend on the inputs this many samples away, and not on their own inputs."""
    told_by_inputs: bool = False
    """Inputs clearly predict their own labels."""
    labels_in_order: bool = False
    """Either labels or inputs depend on their position in the data set, and the other does not; and labels do not
    depend on inputs.
    """
    unlike_evaluation: bool = False
    """Labels depend on the inputs in evaluation, but not in training."""
    shared_with_evaluation: float = 0.0
    """The share of evaluation samples that occur in training."""
    commonest_label: float | None = None
    """The share of the most common label; None if samples have no labels."""
    constant_parts: tuple[float, ...] = ()
    """For parts of the samples that hold a single number everywhere: those numbers."""
    sorted_labels: int = 0
    """The number of classes, if the data set is read in the order of its labels."""
    crossing: Crossing | None = None
    """A view that mixes up colour channels and rows of images when a sample is read."""


@dataclass(slots=True)
class Parted:
    """Samples that were trained with targets of other samples, step after step."""

    where: str
    seen: str


@dataclass(slots=True)
class Inputs:
    """Statistics of the inputs of a model's first layer."""

    model: str
    layer: str
    shape: tuple[int, ...]
    lowest: float
    highest: float
    whole: bool
    """All are whole numbers."""
    image: bool
    zero_interleaved: bool = False
    """Every second token is zero, and no other token is."""
    size: float = 0.0
    """The largest root mean square of any feature."""
    deviation: float = 0.0
    """The same after subtracting the mean of each feature."""
    mean: float = 0.0
    evaluated: bool = False
    """They entered without gradients, after a batch with gradients had entered the same layer."""


@dataclass(slots=True)
class Shown:
    """The samples of a forward without gradients."""

    model: str
    update: int
    samples: int
    shared: int
    """The number of samples that were trained on before."""
    distinct: int
    names: bool
    """They consist of whole numbers. Short ones repeat by chance."""


@dataclass(slots=True)
class ToldBy:
    """A column of the inputs that holds the target."""

    where: str
    column: str
    """The column in words."""
    how: str
    """"equals": it is the target; "tells": it is one-to-one with the classes, or nearly a multiple of the target."""
    rows: int


@dataclass(slots=True)
class Overlap:
    """The windows of a series in a forward without gradients, and how many of them end inside a training window."""

    model: str
    update: int
    windows: int
    shared: int


@dataclass(slots=True)
class Scaled:
    """An array that holds training and evaluation samples and was scaled as a whole."""

    rows: int
    how: str
    """"mean 0 and deviation 1", or "the range from 0 to 1"."""
    evaluated: int


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """All facts of this subject."""

    loaders: tuple[Loader, ...] = ()
    samples: tuple[Samples, ...] = ()
    inputs: tuple[Inputs, ...] = ()
    parted: tuple[Parted, ...] = ()
    ordered_apart: tuple[Parted, ...] = ()
    """Arrays that were made together, but the source reorders only one of them."""
    reorders: bool = True
    """The source reorders something. True if the source cannot be read."""
    rising_targets: tuple[tuple[str, int], ...] = ()
    """Lines of losses whose targets rise from batch to batch while inputs do not, and for how many batches."""
    shown: tuple[Shown, ...] = ()
    told_by: tuple[ToldBy, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    scaled_together: tuple[Scaled, ...] = ()
    part_of: int = 0
    """The number of rows of an array from which a single batch is used over and over; 0 if there is none."""
    shuffled_once: int = 0
    """The number of rows of an array that was shuffled once: every pass uses the same order; 0 if there is none."""
    reseeded_updates: int = 0
    """Updates that drew the same random numbers as the previous update."""
    unseeded_generators: tuple[str, ...] = ()
    """Global generators that the loop uses but never seeds, although it seeds torch."""
