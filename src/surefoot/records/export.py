"""What an export wrote, and how closely its files compute the same numbers as the model."""

from dataclasses import dataclass


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
    """For each tensor that the program takes, the dimensions that may have any size."""
    left_out: tuple[str, ...] = ()
    """Outputs of the model that are no tensors, and so not of the program."""
    why_no_program: str = ""
    """Then `program` is empty."""


@dataclass(frozen=True)
class Weights:
    """All weights of one checkpoint, as a set of files. `passed_over` names newer checkpoints that are damaged."""

    run: str
    step: int
    files: tuple[str, ...]
    total_bytes: int
    tensors: int
    passed_over: tuple[str, ...] = ()
