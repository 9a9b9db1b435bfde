"""distill: a small student learns from a larger teacher's probabilities and from the labels."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.recipe.ranges import Count, Number, Rate, Share

FEATURES, CLASSES = 16, 10


def network(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES))


def teacher() -> nn.Module:
    """A network that already knows the answer: the labels are its own. It stays as it is."""
    made = network(256)
    with torch.no_grad():
        draws = torch.Generator().manual_seed(7)
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draws) * (2 / parameter.shape[-1]) ** 0.5)
    return made.requires_grad_(False)


def samples(count: int, seed: int) -> TensorDataset:
    """Random inputs, and what the teacher says of them."""
    x = torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, teacher()(x).argmax(1))


def agreement(networks: Any, batch: tuple[Tensor, Tensor]) -> dict[str, tuple[Tensor, int]]:
    x, y = batch
    return {"accuracy": ((networks["student"](x).argmax(1) == y).sum(), len(y))}


def distill(
    hidden: Count = 32, temperature: Number = 2.0, soft: Share = 0.7, lr: Rate = 3e-3, max_steps: Count = 1000
) -> Recipe:
    def update(networks: Any, optimizer: Any, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        """The teacher runs without gradients, in evaluation mode. Its part is scaled by the temperature squared."""
        x, y = batch
        networks["teacher"].eval()
        with torch.no_grad():
            known = F.log_softmax(networks["teacher"](x) / temperature, dim=-1)
        said = networks["student"](x)
        learned = F.log_softmax(said / temperature, dim=-1)
        match = F.kl_div(learned, known, reduction="batchmean", log_target=True) * temperature**2
        labels = F.cross_entropy(said, y)
        loss = soft * match + (1 - soft) * labels
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "match": match, "labels": labels}

    return Recipe(
        model=lambda: {"student": network(hidden), "teacher": teacher()},
        data=lambda: samples(4096, seed=1),
        evaluation=lambda: samples(1024, seed=2),
        evaluate_every=max(1, max_steps // 10),
        evaluation_batches=None,
        step=update,
        metrics=agreement,
        best="accuracy",
        optimizer=lambda networks: torch.optim.AdamW(networks["student"].parameters(), lr=lr),
        micro_batch_size=128,
        max_steps=max_steps,
        about="the answers of a teacher, by a student an eighth of its size",
    )
