"""Boxes of objects: scenes that are made one by one, a data set that augments samples, and an evaluation."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(0)


class Scenes(Dataset):
    def __init__(self, number, augment):
        size = torch.randint(5, 12, (number, 2))
        corner = (torch.rand(number, 2) * (24 - size)).long()
        self.images, self.augment = 0.3 * torch.randn(number, 1, 24, 24), augment
        for place in range(number):
            (x, y), (w, h) = corner[place], size[place]
            self.images[place, 0, y : y + h, x : x + w] += 1.5 * torch.ones(h, w)
        self.boxes = torch.cat([(corner + size / 2) / 24, size / 24], 1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, place):
        image, box = self.images[place], self.boxes[place].clone()
        if self.augment and torch.rand(()) < 0.5:
            image, box[0] = image.flip(-1), 1 - box[0]
        return {"image": image, "box": box}


model = nn.Sequential(
    *(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 4), nn.Sigmoid()),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loader = DataLoader(Scenes(1280, augment=True), 64, shuffle=True)
held_out = DataLoader(Scenes(256, augment=False), 128)
made = 0
while made < updates:
    model.train()
    for batch in loader:
        loss = F.smooth_l1_loss(model(batch["image"]), batch["box"], beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        made += 1
    model.eval()
    with torch.no_grad():
        errors = [(model(batch["image"]) - batch["box"]).abs().mean(1) for batch in held_out]
    print(made, loss.item(), torch.cat(errors).mean().item())
