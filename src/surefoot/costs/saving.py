"""Saving: how long a checkpoint takes to be written, by the speed of the storage."""

from __future__ import annotations

SHARED_DISK = 100e6
"""Bytes per second that a rank is sure to save on a file system that many share. Our assumption."""
STORAGE = {SHARED_DISK: "100 MB/s", 1e9: "1 GB/s", 5e9: "5 GB/s"}
"""Speeds of storage in bytes per second. A default cloud disk writes 125 MiB/s (gp3 of AWS:
https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html), a SATA SSD at most 0.6 GB/s (the rate of its
link), and a local NVMe SSD on four lanes of PCIe 4.0 at most 7.9 GB/s. All ranks share what a file system gives."""


def saving_seconds(checkpoint_bytes: int) -> dict[str, float]:
    """The seconds that a checkpoint of all ranks takes to be written, by the speed of the storage."""
    return {name: checkpoint_bytes / speed for speed, name in STORAGE.items()}
