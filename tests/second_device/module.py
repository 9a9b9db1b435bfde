"""`torch.second`: what torch asks the module of a device for. Random numbers come from the CPU's generator."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from tests import second_device

device = nullcontext
"""There is one device, so there is nothing to switch."""


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _lazy_init() -> None:
    pass


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    pass


def synchronize(device: Any = None) -> None:
    """Waits for all queued work: a wait that counts."""
    torch.accelerator.synchronize()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The free and all bytes."""
    return second_device.memory()


def manual_seed(seed: int) -> None:
    """Nothing: `torch.manual_seed` has seeded the CPU's generator."""


def manual_seed_all(seed: int) -> None:
    """Nothing: `torch.manual_seed` has seeded the CPU's generator."""


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.set_rng_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    for state in states:
        set_rng_state(state)
