"""sentiment: classify reviews of four features. BatchNorm and Dropout behave differently in evaluation."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.recipe.ranges import Count, Rate, Share


class SentimentClassifier(nn.Module):
    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.widen = nn.Linear(4, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(hidden, 2)

    def forward(self, features: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.widen(features)))
        return self.classify(self.dropout(hidden))  # raw logits: cross_entropy applies the softmax


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    features, labels = batch
    return F.cross_entropy(model(features), labels, reduction="sum"), len(labels)


def features_of(item: dict[str, list[float]]) -> list[Tensor]:
    """A line such as `{"features": [0.1, 0.9, 0.2, 0.8]}` as a sample without its label."""
    return [torch.tensor(item["features"], dtype=torch.float32)]


def chances(model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
    """The likelier class of each review, and the probability of both."""
    logits = model(batch[0])
    return {"class": logits.argmax(1), "probabilities": logits.softmax(1)}


def reviews(samples: int) -> TensorDataset:
    """Four features around one centre for positive reviews, around another for negative ones."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 2, (samples,), generator=generator)
    centres = torch.tensor([[0.1, 0.9, 0.2, 0.8], [0.8, 0.1, 0.9, 0.2]])
    return TensorDataset(centres[labels] + 0.3 * torch.randn(samples, 4, generator=generator), labels)


def sentiment(hidden: Count = 32, dropout: Share = 0.3, samples: Count = 1000, lr: Rate = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: SentimentClassifier(hidden, dropout),
        data=lambda: reviews(samples),
        loss=class_loss,
        read=features_of,
        predict=chances,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=64,
        global_batch_tokens=128,
        max_grad_norm=1.0,
        max_steps=150,
        about=f"good or bad, from {samples} made-up reviews of four features",
    )
