"""How much memory of a device is free for more tensors."""

from __future__ import annotations

import torch


def free_bytes(device: torch.device) -> int | None:
    """The free bytes of a device, with those that torch's allocator keeps for reuse. None for the CPU, and if unknown.

    Modules of devices (`torch.cuda`, `torch.xpu`) document `mem_get_info`, `memory_reserved` and `memory_allocated`.
    """
    if device.type in ("cpu", "meta"):
        return None
    module = torch.get_device_module(device)
    if not hasattr(module, "mem_get_info"):
        return None
    free, _ = module.mem_get_info(device)
    kept = module.memory_reserved(device) - module.memory_allocated(device) if hasattr(module, "memory_reserved") else 0
    return int(free + kept)
