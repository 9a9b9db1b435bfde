"""Precision: which number format the step computes in, by Lightning's names.

| name         | parameters | computed in                    | gradients scaled |
|--------------|------------|--------------------------------|------------------|
| `32-true`    | float32    | float32                        | no               |
| `bf16-mixed` | float32    | bfloat16 where autocast allows | no               |
| `16-mixed`   | float32    | float16 where autocast allows  | yes              |
| `bf16-true`  | bfloat16   | bfloat16                       | no               |

`fp8` and `fp8-rowwise` are `bf16-mixed` whose linear layers multiply in FP8: see `fp8.py`.

Gradients and optimizer state have the format of the parameters. `in_float32` lists what else stays in float32.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from surefoot.recipe.recipe import Precision
from surefoot.trees import map_tensors

_ON_CPU = "losses and products over elements"
_ON_CUDA = "norms, softmax, losses, exponentials, logarithms, powers, sums and products over elements"
"""From torch's lists of autocast operators. On the CPU, norms and softmax compute in the smaller format."""

COMPUTED_IN: dict[Precision, torch.dtype] = {
    "bf16-mixed": torch.bfloat16,
    "16-mixed": torch.float16,
    "fp8": torch.bfloat16,
    "fp8-rowwise": torch.bfloat16,
}
"""The format of each mixed precision."""


def in_float32(precision: Precision, device: torch.device, *, sharded: bool = False) -> str:
    """Describes what is kept or computed in float32. The step's own sum of losses always is."""
    if precision == "32-true":
        return "everything"
    if precision == "bf16-true":
        return "only what the model asks for"
    if sharded:
        return "parameters, gradients, their reduction, optimizer state; the model's result and the loss"
    computed = _ON_CPU if device.type == "cpu" else _ON_CUDA
    return f"parameters, gradients, optimizer state; results of embeddings, {computed}"


@contextmanager
def parameters_in(precision: Precision) -> Iterator[None]:
    """A context that builds models with parameters in the precision's format."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if precision == "bf16-true" else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def inputs_in(precision: Precision, batch: Any) -> Any:
    """A batch with its floats in the parameters' format; integers stay as they are."""
    if precision != "bf16-true":
        return batch
    return map_tensors(lambda each: each.to(torch.bfloat16) if each.dtype.is_floating_point else each, batch)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """A context in which forward and loss compute in the precision's format."""
    if precision not in COMPUTED_IN:
        return nullcontext()
    return torch.autocast(device.type, dtype=COMPUTED_IN[precision])


def scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """A gradient scaler. Only `16-mixed` needs one; for the others it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "16-mixed")
