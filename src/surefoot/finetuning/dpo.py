"""DPO: learns from preferences. The better answer of a pair should gain probability against the worse one.

The loss of a pair is `-log sigmoid(beta * (gain of the chosen answer - gain of the rejected one))`. The gain of an
answer is its log-probability under the model that is trained, minus that under the reference policy, the model before
training (https://arxiv.org/abs/2305.18290). `beta` times the gain is called the reward of an answer.

Adapters can be switched off, and the model without them is the reference: it takes another forward without gradients,
in evaluation mode, and no memory for a second model. Where the model's own weights are trained, the log-probabilities
of the reference come with the batch: `surefoot data reference` computes them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot.data.packing import IGNORED
from surefoot.data.pairs import CHOSEN, REJECTED, bits_of, numbers_of
from surefoot.finetuning.tasks import SAMPLES, Batch, next_tokens

Loss = Callable[[nn.Module, Any], tuple[Tensor, int]]


@dataclass(frozen=True)
class Rewards:
    """The rewards of the chosen and the rejected answer of each pair."""

    chosen: Tensor
    rejected: Tensor

    @property
    def margin(self) -> Tensor:
        return self.chosen - self.rejected


def dpo_loss(beta: float) -> Loss:
    """The loss, as a sum over pairs and their number."""

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        margin = rewards(model, batch, beta).margin
        return -F.logsigmoid(margin).sum(), len(margin)

    return loss


def dpo_metrics(beta: float) -> Callable[[nn.Module, Any], dict[str, tuple[Tensor, int]]]:
    """The mean rewards, their mean difference, and the share of pairs whose chosen answer has the higher reward."""

    def metrics(model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        found = rewards(model, batch, beta)
        pairs = len(found.margin)
        return {
            "reward_chosen": (found.chosen.sum(), pairs),
            "reward_rejected": (found.rejected.sum(), pairs),
            "margin": (found.margin.sum(), pairs),
            "accuracy": ((found.margin > 0).sum(), pairs),
        }

    return metrics


def rewards(model: nn.Module, batch: Batch, beta: float) -> Rewards:
    """The rewards of a batch of pairs. The reference runs first, so that its memory is free again before the model's.

    Without log-probabilities of the reference in the batch, the model must have adapters.
    """
    if "reference" in batch:
        reference = numbers_of(batch["reference"])
    else:
        with as_reference(model):
            reference = answer_log_probabilities(model, batch)
    gains = beta * (answer_log_probabilities(model, batch) - reference)
    return Rewards(gains[:, CHOSEN], gains[:, REJECTED])


def answer_log_probabilities(model: nn.Module, batch: Batch) -> Tensor:
    """The log-probability of each answer: a row for each pair, with the chosen and the rejected one.

    Padding follows the answers, so a causal model needs no mask: no answer sees it. Sums are in float32.
    """
    tokens, labels = batch["input_ids"], batch["labels"]
    logits = model(input_ids=tokens.flatten(0, 1)).logits
    each = F.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return -each.view(labels.shape).sum(-1)


@contextmanager
def as_reference(model: nn.Module) -> Iterator[None]:
    """A context in which the model computes without its adapters, dropout and gradients, as before training."""
    adapted: Any = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    training = [module for module in adapted.modules() if module.training]
    trained = [each for each in adapted.parameters() if each.requires_grad]
    frozen = [each for each in adapted.parameters() if not each.requires_grad]
    adapted.eval()
    try:
        with torch.no_grad(), adapted.disable_adapter():
            yield
    finally:
        for module in training:
            module.training = True
        # peft makes every parameter of an adapter trainable again, also those that a recipe freezes
        for parameters, flag in ((trained, True), (frozen, False)):
            for each in parameters:
                if each.requires_grad is not flag:
                    each.requires_grad_(flag)


class RandomPairs(Dataset[Batch]):
    """Random pairs of full length, to plan and profile without data. A number names a pair."""

    draws_randomness = False

    def __init__(self, vocabulary: int, context: int, *, with_reference: bool) -> None:
        self.vocabulary, self.context, self.with_reference = vocabulary, context, with_reference

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> Batch:
        draw = torch.Generator().manual_seed(number)
        pair = next_tokens(torch.randint(0, self.vocabulary, (2, self.context), generator=draw))
        return {**pair, "reference": bits_of(torch.zeros(2))} if self.with_reference else pair
