"""Accumulate: gradients of all micro-batches, divided once by the count of all their elements."""

from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor


def sum_and_count(
    loss: torch.Tensor | tuple[torch.Tensor, torch.Tensor | int],
) -> tuple[torch.Tensor, torch.Tensor | int]:
    """What a recipe's loss returned, as a sum and its count; a mean counts as one."""
    return loss if isinstance(loss, tuple) else (loss, 1)


def expected(count: torch.Tensor | int, micro_batches: int) -> torch.Tensor | int:
    """The count of the whole step, if every micro-batch has as many elements as the first."""
    return count if micro_batches == 1 else count * micro_batches


def divided(loss: torch.Tensor, reference: torch.Tensor | int) -> torch.Tensor:
    """A sum on the scale of a mean; a mean passes as it is."""
    return loss if isinstance(reference, int) and reference == 1 else loss / reference


def normalise(
    parameters: Iterable[torch.nn.Parameter], reference: torch.Tensor | int, count: torch.Tensor | int
) -> None:
    """Gradients that were divided by `reference` on the way are brought to the true count.

    Backward ran on sums divided by the count that was expected, which keeps float16 in range. Where that was
    the count of the whole step, nothing is left to do.
    """
    if reference is count or (isinstance(count, int) and reference == count):
        return
    ratio = reference / count
    for parameter in parameters:
        if parameter.grad is not None:
            local_part(parameter.grad).mul_(ratio)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
