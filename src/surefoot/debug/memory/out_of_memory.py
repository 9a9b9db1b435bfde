"""Out-of-memory errors: how they are known, how many bytes they asked for, and what is known of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

import torch

from surefoot.debug.errors.stack import spots
from surefoot.recipe.recipe import UNITS
from surefoot.records.out_of_memory import Held, OutOfMemory
from surefoot.trees import plain, tensors_in

_OF_CPU = "DefaultCPUAllocator: can't allocate memory"
"""How torch's CPU allocator says it, in a RuntimeError."""
_ASKED = re.compile(rf"[Tt]r(?:ied|ying) to allocate (\d+(?:\.\d+)?) ?(bytes|{'|'.join(UNITS)})")
_FOLLOW = "run it again with --memory-limit to see every tensor that was live, and the line that made it"
_COMPILED = "single tensors are not known: a compiled step is not followed; compile=off shows them"
_ATTACHED = "surefoot_out_of_memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, or Python, had no memory left: on a GPU, on a CPU, or because of a limit."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and _OF_CPU in str(error)
    )


def said(error: BaseException) -> str:
    return str(error).strip()


def asked_bytes(message: str) -> int | None:
    """The bytes that were asked for: exact from a limit or a CPU, rounded to hundredths of a GiB from a GPU."""
    found = _ASKED.search(message)
    if found is None:
        return None
    return round(float(found[1]) * UNITS.get(found[2], 1))


def known_of(
    error: BaseException, device: torch.device, standing: Mapping[str, int], limit_bytes: int | None = None
) -> OutOfMemory:
    """What is known of an error in a training that was not followed: its line, and the bytes that stay."""
    last = next((each for each in reversed(spots(error)) if each.is_user), None)
    return OutOfMemory(
        error=type(error).__name__,
        message=said(error),
        asked_bytes=asked_bytes(said(error)),
        limit_bytes=limit_bytes,
        device=str(device),
        place=last.place if last is not None else None,
        held=tuple(Held(account, "", "", size) for account, size in standing.items() if size),
        notes=(_FOLLOW if limit_bytes is None else _COMPILED,),
    )


class Followed(Protocol):
    """The memory of a training that had a limit: `LimitedMemory`."""

    limit_bytes: int

    def seen_at(self, error: BaseException) -> OutOfMemory | None:
        """All that was live when memory ran out; None if it was not followed."""


def looked_at(
    error: BaseException,
    memory: Followed | None,
    device: torch.device,
    models: Iterable[torch.nn.Module] = (),
    optimizers: Iterable[torch.optim.Optimizer] = (),
) -> OutOfMemory | None:
    """What is known of an error: all that was live, if its memory was followed. None if memory did not run out."""
    if not is_out_of_memory(error):
        return None
    record = None if memory is None else memory.seen_at(error)
    if record is None:
        held = standing_bytes(models, optimizers)
        record = known_of(error, device, held, None if memory is None else memory.limit_bytes)
    return record


def standing_bytes(
    models: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer] = ()
) -> dict[str, int]:
    """The bytes of parameters, gradients, buffers and optimizer states, as they are now. Shared tensors count once."""
    parameters = {each: None for model in models for each in model.parameters()}
    buffers = {each: None for model in models for each in model.buffers()}
    kept_in: dict[str, Iterable[torch.Tensor]] = {
        "parameters": parameters,
        "gradients": (each.grad for each in parameters if each.grad is not None),
        "optimizer": (each for optimizer in optimizers for each in tensors_in(dict(optimizer.state))),
        "buffers": buffers,
    }
    return {account: sum(inner.nbytes for each in held for inner in plain(each)) for account, held in kept_in.items()}


def attach(error: BaseException, record: OutOfMemory) -> None:
    """Lets an error carry what is known of it, to whoever prints it."""
    setattr(error, _ATTACHED, record)


def attached(error: BaseException) -> OutOfMemory | None:
    """What an error carries, if it is an out-of-memory error that was looked at."""
    found = getattr(error, _ATTACHED, None)
    return found if isinstance(found, OutOfMemory) else None
