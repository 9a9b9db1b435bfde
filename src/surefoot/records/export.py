"""What an export wrote, and how closely its files compute the same numbers as the model."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from surefoot.plain_files import write_whole
from surefoot.records.codec import read_record, to_json

FILE = "export.json"
"""The record in the folder of an export."""


@dataclass(frozen=True)
class Written:
    """One more format of an export. If it could not be written, `reason` says why, and the rest is empty."""

    format: str
    path: str = ""
    bytes: int = 0
    difference: float = math.inf
    """The largest difference of any output, relative to its largest value, after running what was written. Infinite if
    nothing was."""
    tolerance: float = 0.0
    compared: str = ""
    """Where it was run."""
    reason: str = ""
    first_module: str = ""
    """The first module of the model whose output differs by more than the tolerance, if any does."""
    note: str = ""
    program_sizes: bool = False
    """Whether it takes every size that the program takes."""

    @property
    def is_equal(self) -> bool:
        """Whether it was written and computes what the model computes."""
        return not self.reason and self.difference <= self.tolerance


@dataclass(frozen=True)
class FixedSize:
    """A dimension of an input that may have one size only."""

    input: str
    dimension: int
    size: int
    why: str


@dataclass(frozen=True)
class SizeLimit:
    """The largest size of a dimension that is free otherwise."""

    input: str
    dimension: int
    most: int


@dataclass(frozen=True)
class Quantised:
    """Weights in fewer bits, and what that costs."""

    kind: str
    """`int8` or `int8-dynamic`."""
    path: str
    bytes: int
    digest: str
    """An xxh3_128."""
    layers: int
    """How many linear layers have int8 weights."""
    parameters: int
    """How many parameters these are."""
    of_parameters: int
    file_difference: float
    """Between the quantised model and the one read back from the file."""
    output_difference: float
    """Between the trained model and the quantised one: the largest, relative to the largest output."""
    data: str = ""
    """What both were scored on. Empty if the recipe has no held-out and no test data."""
    samples: int | None = None
    before: dict[str, float] = field(default_factory=dict)
    """The figures of the weights as trained."""
    after: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class QuantisedGguf:
    """A GGUF file in fewer bits, by llama.cpp's quantiser. If it could not be made, `reason` says why."""

    kind: str
    """As llama.cpp names it: `Q4_K_M`."""
    path: str = ""
    bytes: int = 0
    digest: str = ""
    """An xxh3_128."""
    quantiser: str = ""
    types: dict[str, int] = field(default_factory=dict)
    """How many tensors have each type."""
    rounding: float = 0.0
    """The largest difference of a tensor to the one that was given, as a share of its norm."""
    rounded_most: str = ""
    difference: float = math.inf
    """As of the float file, between log-probabilities."""
    data: str = ""
    """What both files were scored on in llama.cpp."""
    tokens: int = 0
    before: float | None = None
    """The perplexity of the float GGUF file."""
    after: float | None = None
    no_score: str = ""
    """Why there is no perplexity."""
    reason: str = ""


@dataclass(frozen=True)
class Export:
    """The written files, and the largest difference between the model and each file after reading it back."""

    run: str
    weights: str
    program: str
    weights_bytes: int
    program_bytes: int
    inputs: tuple[str, ...]
    dynamic_batch: bool
    tolerance: float
    weights_difference: float
    program_difference: float
    free: tuple[tuple[int, ...], ...] = ()
    """For each tensor that the program takes, the dimensions whose size is free."""
    fixed: tuple[FixedSize, ...] = ()
    """The other dimensions, but those of size one."""
    limits: tuple[SizeLimit, ...] = ()
    left_out: tuple[str, ...] = ()
    """Outputs of the model that are no tensors, and so not of the program."""
    why_no_program: str = ""
    """Then `program` is empty."""
    recipe: str = ""
    target: str = ""
    knobs: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    source_digest: str = ""
    """Of the recipe's code, as in the run."""
    weights_digest: str = ""
    """An xxh3_128."""
    formats: tuple[Written, ...] = ()
    """The formats besides safetensors and torch.export's program."""
    adapter: str = ""
    """The folder of the adapters, in peft's format. Empty if the model has none."""
    adapter_bytes: int = 0
    adapter_difference: float = 0.0
    quantised: Quantised | None = None
    quantised_gguf: tuple[QuantisedGguf, ...] = ()


def write_export(export: Export) -> None:
    """Keeps the record beside the files."""
    write_whole(Path(export.weights).parent / FILE, to_json(export) + "\n", shared=True)


def read_export(folder: Path) -> Export | None:
    """The record in a folder, which may have been moved; None if it holds none."""
    if not (folder / FILE).exists():
        return None
    found = read_record(Export, folder / FILE)
    program = found.program and str(folder / Path(found.program).name)
    quantised = found.quantised and replace(found.quantised, path=str(folder / Path(found.quantised.path).name))
    return replace(found, weights=str(folder / Path(found.weights).name), program=program, quantised=quantised)


@dataclass(frozen=True)
class Weights:
    """All weights of one checkpoint, as a set of files. `passed_over` names newer checkpoints that are damaged."""

    run: str
    step: int
    files: tuple[str, ...]
    total_bytes: int
    tensors: int
    passed_over: tuple[str, ...] = ()
    steps_after: int = 0
    """How many steps the log has after this checkpoint. They are not in the weights."""
