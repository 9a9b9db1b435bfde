"""LoRA on a model of your own: `adapt` puts peft's adapters on it, after `init_from` has filled it."""

import peft
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def waves() -> TensorDataset:
    x = torch.linspace(-3, 3, 256)[:, None]
    return TensorDataset(x, torch.sin(2 * x))


def adapters(rank: int = 4, lr: float = 1e-2) -> Recipe:
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["0", "2"])
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)),
        adapt=lambda model: peft.get_peft_model(model, config),  # gets the model with its first weights
        data=waves,
        loss=lambda model, batch: F.mse_loss(model(batch[0]), batch[1]),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=32,
        max_steps=100,
        about="a sine, by adapters on a small network",
    )
