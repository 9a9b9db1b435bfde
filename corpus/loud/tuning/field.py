import torch
from torch import nn
from torch.utils.data import Dataset

from surefoot import Recipe


class Pixels(Dataset):
    def __init__(self, side=8):
        self.side = side

    def __len__(self):
        return self.side * self.side

    def __getitem__(self, index):
        row, column = divmod(index, self.side)
        place = torch.tensor([row, column], dtype=torch.float32) / self.side
        colour = torch.stack([place.sum(), place.prod(), 1 - place[0]])
        return place, colour


class Waves(nn.Module):
    def __init__(self, inputs, count):
        super().__init__()
        self.rates = nn.Parameter(3 * torch.randn(inputs, count))

    def forward(self, places):
        angles = places @ self.rates
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Field(nn.Module):
    def __init__(self, count=6, width=16):
        super().__init__()
        self.waves = Waves(2, count)
        self.body = nn.Sequential(nn.Linear(2 * count, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.colour = nn.Linear(width, 3)

    def forward(self, places):
        return torch.sigmoid(self.colour(self.body(self.waves(places))))


def field_loss(model, batch):
    places, colours = batch
    shown = model(places)
    return (shown - colours).square().mean()


def field(count: int = 6, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: Field(count),
        data=lambda: Pixels(),
        loss=field_loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=8,
        max_steps=4,
    )
