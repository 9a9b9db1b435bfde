"""Bird calls: a network learned on five common birds is fine-tuned on three rare ones, its norms kept as they were."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 16


def calls(pitches, each, generator):
    """Pictures of sound, (1, SIDE, SIDE): a sweep whose start, slope and warble depend on the bird."""
    time = torch.arange(SIDE) / SIDE
    height = torch.arange(SIDE)[:, None]
    pictures, birds = [], []
    for bird, (start, slope, warble) in enumerate(pitches):
        for _ in range(each):
            shift = torch.randn((), generator=generator)
            line = start + slope * time + warble * torch.sin(12 * time + shift) + 0.7 * shift
            loud = torch.exp(-((height - line) ** 2) / 2) + 0.25 * torch.randn(SIDE, SIDE, generator=generator)
            pictures.append(loud[None])
            birds.append(bird)
    return TensorDataset(torch.stack(pictures), torch.tensor(birds))


def body(width=8):
    def block(inner, outer):
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(2)
        )

    return nn.Sequential(block(1, width), block(width, 2 * width), block(2 * width, 2 * width), nn.Flatten())


class Listener(nn.Module):
    """A body and a head; with `still`, norms keep the statistics that they were loaded with, in training too."""

    def __init__(self, birds, still=False):
        super().__init__()
        self.body = body()
        self.head = nn.Linear(64, birds)
        self.still = still

    def forward(self, pictures):
        return self.head(self.body(pictures))

    def train(self, mode=True):
        super().train(mode)
        if self.still:
            for module in self.body.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(pictures).argmax(dim=1) == birds).sum().item() for pictures, birds in loader)
    return right / len(loader.dataset)


def pretrain(path, generator):
    common = [(2, 8, 0), (13, -8, 0), (8, 0, 3), (4, 0, 0.5), (11, 3, 1)]
    loader = DataLoader(calls(common, 50, generator), batch_size=25, shuffle=True)
    held = DataLoader(calls(common, 12, generator), batch_size=60)
    model = Listener(len(common))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(3):
        model.train()
        for pictures, birds in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(pictures), birds).backward()
            optimizer.step()
    print(f"common birds told {accuracy(model, held):.1%}")
    torch.save(model.body.state_dict(), path)


def fine_tune(path, generator):
    rare = [(3, 5, 2), (12, -4, 2), (6, 6, 0)]
    loader = DataLoader(calls(rare, 20, generator), batch_size=12, shuffle=True)
    held = DataLoader(calls(rare, 20, generator), batch_size=60)
    model = Listener(len(rare), still=True)
    model.body.load_state_dict(torch.load(path))
    optimizer = torch.optim.AdamW(
        [{"params": model.body.parameters(), "lr": 5e-4}, {"params": model.head.parameters(), "lr": 5e-3}]
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
    for epoch in range(5):
        model.train()
        total = 0.0
        for pictures, birds in loader:
            loss = F.cross_entropy(model(pictures), birds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(birds)
        scheduler.step()
        print(f"epoch {epoch} loss {total / len(loader.dataset):.3f} rare birds told {accuracy(model, held):.1%}")


if __name__ == "__main__":
    torch.manual_seed(31)
    sounds = torch.Generator().manual_seed(32)
    pretrain("body.pt", sounds)
    fine_tune("body.pt", sounds)
