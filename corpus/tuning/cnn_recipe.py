"""Grey pictures of four kinds: a CNN as a recipe, with augmentation in the data set."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe


class Kinds(Dataset):
    """Byte pictures; training ones are shifted at random."""

    def __init__(self, samples: int, seed: int, shift: bool) -> None:
        generator = torch.Generator().manual_seed(seed)
        kinds = torch.randint(0, 200, (4, 14, 14), generator=torch.Generator().manual_seed(0))
        self.labels = torch.randint(0, 4, (samples,), generator=generator)
        noise = torch.randint(0, 56, (samples, 14, 14), generator=generator)
        self.pictures = (kinds[self.labels] + noise).to(torch.uint8)
        self.shift = shift

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        picture = self.pictures[index].float().unsqueeze(0) / 255
        if self.shift:
            picture = picture.roll(int(torch.randint(-1, 2, ())), dims=-1)
        return (picture - 0.5) / 0.25, self.labels[index]


class Network(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.dropout = nn.Dropout(0.2)
        self.classify = nn.Linear(channels * 7 * 7, 4)

    def forward(self, pictures: Tensor) -> Tensor:
        h = F.relu(self.conv1(pictures))
        h = F.max_pool2d(F.relu(self.conv2(h)), 2)
        return self.classify(self.dropout(h.flatten(1)))


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    pictures, labels = batch
    logits = model(pictures)
    return F.cross_entropy(logits, labels)


def kinds(channels: int = 8, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: Network(channels),
        data=lambda: Kinds(256, seed=1, shift=True),
        evaluation=lambda: Kinds(64, seed=2, shift=False),
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=16,
        max_steps=60,
        evaluate_every=30,
    )
