"""Accumulate: adds the gradients of all micro-batches and divides once, by the count of all their elements."""

from collections.abc import Iterable

import torch

from surefoot.trees import local_part


def sum_and_count(
    loss: torch.Tensor | tuple[torch.Tensor, torch.Tensor | int],
) -> tuple[torch.Tensor, torch.Tensor | int]:
    """The result of a recipe's loss as a sum and its count. A mean has the count 1."""
    return loss if isinstance(loss, tuple) else (loss, 1)


def expected(count: torch.Tensor | int, micro_batches: int) -> torch.Tensor | int:
    """The count of the whole step, if every micro-batch has as many elements as the first."""
    return count if micro_batches == 1 else count * micro_batches


def divided(loss: torch.Tensor, reference: torch.Tensor | int) -> torch.Tensor:
    """Divides a sum, so that it has the scale of a mean. A mean passes unchanged."""
    return loss if isinstance(reference, int) and reference == 1 else loss / reference


def normalise(
    parameters: Iterable[torch.nn.Parameter], reference: torch.Tensor | int, count: torch.Tensor | int
) -> None:
    """Rescales gradients that were divided by `reference` to the true count.

    Backward ran on sums divided by the expected count, which keeps float16 in range. If that was the true count of
    the step, this does nothing.
    """
    if reference is count or (isinstance(count, int) and reference == count):
        return
    ratio = reference / count
    for parameter in parameters:
        if parameter.grad is not None:
            local_part(parameter.grad).mul_(ratio)
