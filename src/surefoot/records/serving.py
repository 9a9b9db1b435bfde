"""What a language model needs to make text: bytes of weights, of keys and values, and a bound of its speed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Served:
    """In one number format, on each device."""

    format: str
    weights_bytes: int
    cache_bytes: int
    """Keys and values of all texts of the batch, with the context full."""
    total_bytes: int
    """With what the device takes for itself."""
    fits: bool | None
    """None if no device was named."""
    tokens_per_second: float | None
    """No more than that, of all texts together: each step reads weights, keys and values once. None if unknown."""


@dataclass(frozen=True)
class Serving:
    """Weights, keys and values for a batch of texts."""

    recipe: str
    about: str
    knobs: dict[str, str | int | float | bool | None]
    parameters: int
    context: int
    batch: int
    device: str
    devices: int
    memory_bytes: int
    """Of one device; 0 if none was named."""
    bandwidth: float
    """Of one device's memory, in bytes per second; 0 if unknown."""
    rows: tuple[Served, ...]
