"""What a merge wrote, and how closely the merged weights compute what the adapters did."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Merged:
    """A Hugging Face folder, and the largest difference of its outputs, read back, to those of the trained model."""

    run: str
    folder: str
    total_bytes: int
    parameters: int
    method: str
    """What was merged: adapters, adapters on 4-bit layers, or nothing if the run trained the weights themselves."""
    inputs: tuple[str, ...]
    tolerance: float
    difference: float
    copied: tuple[str, ...] = ()
    """Files of the tokenizer that were copied from the first model's folder."""
