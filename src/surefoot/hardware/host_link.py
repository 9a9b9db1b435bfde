"""Host link: the bandwidth between a device and the memory of its host."""

from __future__ import annotations

from surefoot.hardware.datasheet import Datasheet

PCIE_BANDWIDTH = {3: 15.75e9, 4: 31.5e9, 5: 63.0e9, 6: 121e9}
"""Bytes per second, one way, of 16 lanes by generation: 8, 16 and 32 GT/s of 128 bits in 130, and 64 GT/s in FLITs of
242 bytes in 256 (PCI-SIG, base specifications 3.0 to 6.0)."""

_GENERATIONS = {
    "7.0": 3, "7.5": 3, "8.0": 4, "8.6": 4, "8.9": 4, "9.0": 5, "10.0": 5, "10.3": 6, "12.0": 5,
    "gfx942": 5, "gfx950": 5,
}  # fmt: skip
"""By compute capability, or an AMD GPU's architecture: NVIDIA's whitepapers of Volta, Turing, Ampere, Ada, Hopper and
Blackwell, and AMD's data sheets of MI300X, MI325X and MI355X. Cited from memory."""

_LANES = {"rtx-4060": 8, "rtx-4060-ti-8gb": 8, "rtx-4060-ti-16gb": 8}
"""Cards with fewer than 16 (NVIDIA, specifications of the GeForce RTX 40 series). Cited from memory."""

_COHERENT = {"gb200": 450e9, "gb300": 450e9}
"""NVLink-C2C to the Grace CPU, one way: half of the 900 GB/s of NVIDIA's data sheets. Cited from memory."""

REACHED_SHARE = 0.78
"""The share of PCIe's bandwidth that copies of pinned memory reach: 12.36 of 15.75 GB/s in the README of
https://github.com/NVIDIA/nvbandwidth (commit 04bf2869). Taken for all generations."""


def host_link(sheet: Datasheet) -> tuple[float, str]:
    """Bytes per second, one way, and what the link is. 0 if it is unknown."""
    if sheet.name in _COHERENT:
        return _COHERENT[sheet.name], "NVLink-C2C"
    generation = _GENERATIONS.get(sheet.compute_capability or sheet.architecture)
    if generation is None:
        return sheet.host_bandwidth, "the bus to the host" if sheet.host_bandwidth else ""
    lanes = _LANES.get(sheet.name, 16)
    return sheet.host_bandwidth or PCIE_BANDWIDTH[generation] * lanes / 16, f"PCIe {generation}.0 x{lanes}"
