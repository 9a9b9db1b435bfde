"""What an export wrote, and how it was shown to compute the same numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Export:
    """Files written, and the largest difference between the model and each file, read back."""

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


@dataclass(frozen=True)
class Weights:
    """The weights of one checkpoint, whole, as a set of files. `passed_over` names newer ones that are damaged."""

    run: str
    step: int
    files: tuple[str, ...]
    total_bytes: int
    tensors: int
    passed_over: tuple[str, ...] = ()
