"""What building a model, a first and a steady step took from a device, as its own allocator counted it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DeviceMemory:
    """The most bytes at once. A number that the device does not count is None.

    `requested_bytes` is what tensors asked for; `allocated_bytes` is the same in whole blocks; `reserved_bytes` is what
    the allocator took from the device. `used_bytes` is what all processes use of the device, `used_before_bytes` the
    same before the model was built: other processes, and the context of this one.
    """

    requested_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None
    used_before_bytes: int | None = None
    total_bytes: int | None = None
    retries: int = 0
    """How often the allocator gave memory back because the device was full."""
    segments: Literal["classic", "expandable"] = "classic"
