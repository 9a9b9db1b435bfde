"""The GPU that a plan is for: its memory, its generation, and the assumptions about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from surefoot.errors import WorldError
from surefoot.hardware import Datasheet, counted, datasheet
from surefoot.hardware.here import HERE

MIB = 1 << 20
CPU = "cpu"
"""This machine's own processor, as a target: `4xcpu` are four ranks of it."""
CONTEXT_BYTES = 426 * MIB
"""GPU memory that a process takes before it allocates anything: https://github.com/unslothai/unsloth-zoo/pull/1053
(torch 2.10, CUDA 13, RTX 6000 Ada). CUDA 11.7 and later load kernels on first use. Earlier versions loaded all of
torch's kernels at once, which took more than 1,000 MiB (https://github.com/pytorch/pytorch/issues/107667)."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU: its name, the bytes that CUDA reports, and its compute capability."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]

    @property
    def blas_workspace_bytes(self) -> int:
        """The workspace of each cuBLAS handle: `parseChosenWorkspaceSize` in ATen/cuda/CublasHandlePool.cpp."""
        hopper_or_blackwell = self.capability[0] in (9, 10)
        return 32 * MIB if hopper_or_blackwell else 2 * 4096 * 1024 + 8 * 16 * 1024

    @property
    def policies(self) -> tuple[str, ...]:
        """The assumptions of a plan that is made without such a GPU."""
        major, minor = self.capability
        return (
            f"a CUDA GPU of compute capability {major}.{minor}, and torch's defaults for it, on fake CPU tensors",
            "autocast casts the operators in CUDA's lists",
            "dropout keeps a mask of 1 byte per element",
            f"attention takes {'flash or ' if major >= 8 else ''}memory-efficient kernels where their conditions hold",
            "rms_norm is one fused kernel; optimizers and clipping work on lists of tensors by default",
            f"cuBLAS keeps {self.blas_workspace_bytes / MIB:.3f} MiB in forward and as much in backward",
            f"the CUDA context takes {CONTEXT_BYTES // MIB} MiB",
        )


def targets(name: str) -> tuple[int, Gpu | None]:
    """The number of ranks and the GPU of each: `8xh100-sxm`, or `h100-sxm` for one. None for `4xcpu` and `here`."""
    count, single = counted(name)
    return count, None if single in (CPU, HERE) else gpu(single)


def gpu(name: str) -> Gpu:
    """The GPU with this datasheet name. Raises if it has no CUDA compute capability."""
    sheet = datasheet(name)
    if not re.fullmatch(r"\d+\.\d", sheet.compute_capability):
        raise WorldError(f"{name!r} has no CUDA compute capability in its datasheet; surefoot plans only CUDA GPUs")
    major, minor = map(int, sheet.compute_capability.split("."))
    return Gpu(name, usable_bytes(sheet), (major, minor))


def usable_bytes(sheet: Datasheet) -> int:
    """The bytes that CUDA reports, if a source states them. Otherwise those on the maker's label."""
    return sheet.usable_bytes or sheet.memory_bytes
