"""Says in words what is wrong with the arguments of kl_div or ctc_loss."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.checks.engine.types import Args, Kwargs
from surefoot.checks.facts.losses import Loss


def argument(args: Args, kwargs: Kwargs, place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def kl_fault(given: torch.Tensor, target: torch.Tensor, log_target: bool) -> str:
    if log_target and bool((target > 1e-3).any()):
        return "log_target=True, but its second argument holds numbers above zero"
    if not log_target and bool((target < 0).any()):
        return "its second argument holds numbers below zero, not probabilities"
    varies = given.dim() > 1 and bool((given != given[:1]).any())
    if target.requires_grad and not given.requires_grad and varies:
        return "the model's prediction is its second argument, and the target its first"
    return ""


def ctc_fault(loss: Loss, values: torch.Tensor, args: Args, kwargs: Kwargs) -> str:
    lengths = argument(args, kwargs, 2, "input_lengths")
    if not loss.log_probabilities and not _are_logarithms(values, torch.as_tensor(lengths)):
        return "its input does not hold log-probabilities"
    longest = int(torch.as_tensor(lengths).max())
    samples = torch.as_tensor(lengths).numel()
    if values.dim() == 3 and values.shape[1] != samples and values.shape[0] == samples:
        return f"its input has {values.shape[0]} steps of {values.shape[1]} samples, but {samples} lengths"
    if values.dim() == 3 and longest > values.shape[0]:
        return f"an input length of {longest} is more than the {values.shape[0]} steps it has"
    return ""


def _are_logarithms(values: torch.Tensor, lengths: torch.Tensor) -> bool:
    """Are these log-probabilities within each sample's length? Values after that length do not matter."""
    if values.dim() != 3 or values.shape[1] != lengths.numel():
        return False
    inside = torch.arange(len(values), device=values.device)[:, None] < lengths.to(values.device).flatten()
    return bool((values.logsumexp(-1)[inside].abs() < 1e-2).all())
