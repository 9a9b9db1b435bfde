"""A recipe: the body of a convolutional network stays, a new head learns."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
from transformers import AutoModel

from surefoot import Recipe


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = AutoModel.from_pretrained("base/resnet-tiny")
        self.head = nn.Linear(16, 2)
        self.body.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, shown):
        return self.head(self.body(shown).pooler_output.flatten(1))


def samples():
    drawn = torch.Generator().manual_seed(4)
    kinds = torch.randint(0, 2, (64,), generator=drawn)
    shown = torch.randn(64, 3, 32, 32, generator=drawn)
    shown[:, 0] += kinds[:, None, None]
    return TensorDataset(shown, kinds)


def loss(model, batch):
    shown, kinds = batch
    return F.cross_entropy(model(shown), kinds)


def frozen_then_head(lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=Headed,
        data=samples,
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=8,
        max_steps=8,
    )
