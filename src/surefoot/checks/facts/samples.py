"""Samples: loaders, data sets, and what of them enters models."""

from dataclasses import dataclass

from surefoot.checks.facts.models import Crossing


@dataclass(slots=True)
class Loader:
    """A DataLoader that was iterated."""

    kind: str
    role: str
    """training, evaluation or unknown"""
    passes: int
    batches: int | None
    drops_last: bool
    workers: int
    keeps_workers: bool = False
    same_epoch: bool = False
    """A sampler that shuffles by epoch was never told of a new one."""
    same_first_batch: bool = False
    """Every pass began with the same samples, although it shuffles."""
    told_twice: bool = False
    """Two workers handed out the same samples of a stream."""
    leftover: int = 0
    """Backwards whose gradients no update had used when a pass ended."""
    window: int = 1
    """Backwards per update."""
    updates_of_a_batch: int = 0
    """The most updates in a row that used a batch of it, before any loader handed out another."""
    worked_through: bool = False
    """Updates followed most of its batches, and several in a pass."""
    out_of_order: bool = False
    """Its sampler draws, or lists places that do not rise."""
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
    told_by_inputs: bool = False
    """Inputs tell their own labels, beyond doubt."""
    labels_in_order: bool = False
    """Labels depend on their place among the samples and inputs do not, or inputs do and labels do not, and neither
    depends on the other."""
    unlike_evaluation: bool = False
    """Labels depend on the inputs in evaluation, and not in training."""
    shared_with_evaluation: float = 0.0
    """The share of evaluation samples that occur in training."""
    commonest_label: float | None = None
    """The share of the label that most samples have; None where samples have no labels."""
    constant_parts: tuple[float, ...] = ()
    """The numbers that are all that some part of the samples holds."""
    sorted_labels: int = 0
    """The number of classes in a data set that is read in the order of its labels."""
    crossing: Crossing | None = None
    """A view that takes colours of pictures for rows while a sample is read."""


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
    deviation: float = 0.0
    """The same of what is left when each feature's mean is taken off."""
    mean: float = 0.0
    evaluated: bool = False
    """They entered without gradients, after others had entered the same layer with them."""


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


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """All facts of this subject."""

    loaders: tuple[Loader, ...] = ()
    samples: tuple[Samples, ...] = ()
    inputs: tuple[Inputs, ...] = ()
    parted: tuple[Parted, ...] = ()
    ordered_apart: tuple[Parted, ...] = ()
    """Arrays that were made together, of which the source orders one anew and not the other."""
    reorders: bool = True
    """The source puts something into another order; true where it cannot be read."""
    rising_targets: tuple[tuple[str, int], ...] = ()
    """Lines of losses whose targets lie above those of the batch before, while no input does: for so many batches."""
    shown: tuple[Shown, ...] = ()
    part_of: int = 0
    """The rows of an array of which one batch is used over and over; 0 where none is."""
    shuffled_once: int = 0
    """The rows of an array that all passes go through in one order, which is not theirs; 0 where none does."""
    reseeded_updates: int = 0
    """Updates that drew the same random numbers as the one before."""
    unseeded_generators: tuple[str, ...] = ()
    """Global generators that the loop draws from and never seeds, while it seeds torch's."""
