"""Attention: the published share of a device's dense peak that fused kernels reach, by kernel and generation."""

from surefoot.hardware import Datasheet

REACHED = {
    ("flash-1", "8"): 0.32,
    ("flash-1", "9"): 0.19,
    ("flash-2", "8"): 0.60,
    ("flash-2", "9"): 0.35,
    ("cudnn", "9"): 0.60,
}
"""By kernel and first digit of the compute capability, for forward and backward together.

flash-1 reaches 30 to 50% of an A100 in forward and 25 to 35% in backward. With two products in forward and five in
backward, that is 7 / (2 / 0.40 + 5 / 0.30). flash-2 reaches 50 to 73% of an A100 (both: arXiv 2307.08691) and 35% of an
H100 (arXiv 2407.08608). We assume that flash-1 is as much slower there as on an A100. cuDNN's kernel is up to 75%
faster than flash-2 on an H100 (release notes of torch 2.5).
"""

TAKEN = {"8": "flash-2", "9": "cudnn"}
"""The kernel that torch 2.13 uses, by the same digit."""


def attention_share(sheet: Datasheet, kernel: str = "") -> float:
    """The share of the dense peak that a kernel reaches (default: torch's own choice); 0 if nothing is published."""
    generation = sheet.compute_capability.partition(".")[0]
    return REACHED.get((kernel or TAKEN.get(generation, ""), generation), 0.0)
