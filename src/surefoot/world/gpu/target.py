"""The GPU that a plan is for: its memory, its generation, and the assumptions about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from surefoot.errors import WorldError
from surefoot.hardware import Datasheet, counted, datasheet, names_said
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
    """One NVIDIA or AMD GPU: its name, the bytes that CUDA reports, and its compute capability.

    On ROCm too, torch calls the device `cuda`. Its capability is two digits of the architecture: (9, 4) of `gfx942`.
    """

    name: str
    memory_bytes: int
    capability: tuple[int, int]
    taken_for: str = ""
    """What the name that was asked for is taken for, if it may mean another card too."""
    architecture: str = ""
    """Of an AMD GPU, as ROCm names it."""

    @property
    def blas_workspace_bytes(self) -> int:
        """The workspace of each handle: `parseChosenWorkspaceSize` in ATen/cuda/CublasHandlePool.cpp."""
        if self.architecture:
            return (128 if self.architecture.startswith(("gfx94", "gfx95")) else 32) * MIB
        hopper_or_blackwell = self.capability[0] in (9, 10)
        return 32 * MIB if hopper_or_blackwell else 2 * 4096 * 1024 + 8 * 16 * 1024

    @property
    def policies(self) -> tuple[str, ...]:
        """The assumptions of a plan that is made without such a GPU."""
        major, minor = self.capability
        rocm = (
            f"an AMD GPU ({self.architecture}) as if ROCm's kernels kept what CUDA's keep; no run on one was compared"
        )
        cuda = f"a CUDA GPU of compute capability {major}.{minor}, and torch's defaults for it, on fake CPU tensors"
        return (
            *([self.taken_for] if self.taken_for else []),
            rocm if self.architecture else cuda,
            "autocast casts the operators in CUDA's lists",
            "dropout keeps a mask of 1 byte per element",
            f"attention takes {'flash or ' if major >= 8 else ''}memory-efficient kernels where their conditions hold",
            "rms_norm is one fused kernel; optimizers and clipping work on lists of tensors by default",
            f"{'hipBLAS' if self.architecture else 'cuBLAS'} keeps {self.blas_workspace_bytes / MIB:.3f} MiB in "
            "forward and as much in backward",
            f"the {'ROCm context takes as much as that of CUDA,' if self.architecture else 'CUDA context takes'} "
            f"{CONTEXT_BYTES // MIB} MiB",
        )


def targets(name: str) -> tuple[int, Gpu | None]:
    """The number of ranks and the GPU of each: `8xh100-sxm`, or `h100-sxm` for one. None for `4xcpu` and `here`."""
    count, single = counted(name)
    return count, None if single in (CPU, HERE) else gpu(single, names_said(name))


def gpu(name: str, taken_for: str = "") -> Gpu:
    """The GPU with this datasheet name. Raises if it is none that torch calls `cuda`."""
    sheet = datasheet(name)
    numbers = re.fullmatch(r"(\d+)\.(\d)|gfx(\d+)(\d)[0-9a-f]", sheet.compute_capability or sheet.architecture)
    if numbers is None:
        raise WorldError(f"plan knows GPUs of NVIDIA and AMD; {_WHY_NOT.get(sheet.vendor, name)}")
    major, minor = (int(each) for each in numbers.groups() if each is not None)
    return Gpu(sheet.name, usable_bytes(sheet), (major, minor), taken_for, sheet.architecture)


_WHY_NOT = {
    "Google": "on a TPU, XLA compiles whole steps and decides itself what stays in memory, which torch cannot tell",
    "Apple": "on MPS, kernels keep other values than CUDA's, which nobody has compared; --on cpu plans live tensors",
    "AMD": "torch sees each MI250X as two devices of 64 GB, for which there is no datasheet",
}
"""Why there is no plan for a device that has a datasheet, by vendor."""


def usable_bytes(sheet: Datasheet) -> int:
    """The bytes that CUDA reports, if a source states them. Otherwise those on the maker's label."""
    return sheet.usable_bytes or sheet.memory_bytes
