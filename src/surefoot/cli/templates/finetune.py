"""A new head on a frozen body, as a recipe: surefoot plans, checks, trains, profiles and exports it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe

CLASSES = 4


def stripes(samples: int) -> TensorDataset:
    """Your data goes here: images of 12 x 12 with stripes in one of four directions.

    Draw from torch's global generator without seeding it: surefoot seeds it before it calls you, so that a resumed run
    sees the same samples.
    """
    labels = torch.randint(0, CLASSES, (samples,))
    across, down = torch.tensor([[1, 0], [0, 1], [1, 1], [1, -1]])[labels, :, None, None].float().unbind(1)
    place = torch.arange(12.0)
    phase = across * place + down * place[:, None] + 6 * torch.rand(samples, 1, 1)
    return TensorDataset(phase.sin()[:, None] + 0.3 * torch.randn(samples, 1, 12, 12), labels)


def body(width: int) -> nn.Sequential:
    """The model that was trained before. `safetensors.torch.save_file(body.state_dict(), FILE)` keeps its weights."""
    return nn.Sequential(
        nn.Conv2d(1, width, 5), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


class Finetuned(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.head = body(width), nn.Linear(width, CLASSES)
        self.body.requires_grad_(False)  # frozen: no gradients, no optimizer state, no memory for either

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))  # raw logits: cross_entropy applies the softmax itself


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """A sum and its count, not a mean: surefoot divides once per step, so the size of a micro-batch changes nothing."""
    images, labels = batch
    return F.cross_entropy(model(images), labels, reduction="sum"), len(labels)


# For a model of transformers you need no file: `surefoot train finetune model=FOLDER method=lora`.
# `surefoot train FILE init_from=body.safetensors init_accept=head.*` starts from the weights of a body and a new head.
# Without weights the body is random, which is enough to see everything work: its features differ from stripe to stripe,
# and the head learns to use them.
def finetune(width: int = 32, lr: float = 3e-2) -> Recipe:
    return Recipe(
        model=lambda: Finetuned(width),
        data=lambda: stripes(2000),
        evaluation=lambda: stripes(400),  # held-out images that training never sees
        evaluate_every=100,
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),  # surefoot passes only what is trained
        micro_batch_size=50,
        max_steps=300,
        about="the direction of stripes, by a new head on a frozen body",
    )
