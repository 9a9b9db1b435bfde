"""The devices of this machine, by the names that plans use."""

from __future__ import annotations

import torch

from surefoot.hardware.datasheet import Datasheet, datasheet_of
from surefoot.world import cuda


def present_sheet(device: torch.device) -> Datasheet | None:
    """The datasheet of a device of this machine. None for a CPU, and if the name is not certain."""
    return datasheet_of(cuda.device_name(device)) if device.type == "cuda" else None


def present(ranks: int) -> str | None:
    """The target of a plan for `ranks` ranks of this machine: `8xh100-sxm` or `2xcpu`. None means one CPU.

    A GPU without a datasheet is planned as a CPU: tensors are the same, kernels and allocator are unknown.
    """
    sheet = present_sheet(torch.device("cuda")) if cuda.is_there() else None
    if sheet is not None:
        return f"{ranks}x{sheet.name}"
    return f"{ranks}xcpu" if ranks > 1 else None
