"""Six drawn shapes, a small CNN with random shifts, flips and noise."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAMES = ["bar", "cross", "dot", "frame", "post", "slash"]
SIZE = 20


def draw(kind):
    picture = torch.zeros(SIZE, SIZE)
    if kind == "bar":
        picture[8:11, 3:17] = 1
    elif kind == "post":
        picture[3:17, 8:11] = 1
    elif kind == "cross":
        picture[9:11, 3:17] = 1
        picture[3:17, 9:11] = 1
    elif kind == "dot":
        picture[7:13, 7:13] = 1
    elif kind == "frame":
        picture[4:16, 4:16] = 1
        picture[6:14, 6:14] = 0
    else:
        for place in range(4, 16):
            picture[place, place - 1 : place + 2] = 1
    return picture


class Shapes(Dataset):
    def __init__(self, count, augment, generator):
        self.labels = torch.randint(0, len(NAMES), (count,), generator=generator)
        noise = 0.25 * torch.randn(count, SIZE, SIZE, generator=generator)
        self.pictures = torch.stack([draw(NAMES[each]) for each in self.labels]) + noise
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        picture = self.pictures[place]
        if self.augment:
            picture = picture.roll(tuple(torch.randint(-3, 4, (2,)).tolist()), (0, 1))
            if torch.rand(()) < 0.5:
                picture = picture.flip(1)
            picture = picture + 0.2 * torch.randn_like(picture)
        return picture[None], self.labels[place]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
        )
        self.head = nn.Linear(144, len(NAMES))

    def forward(self, pictures):
        return self.head(F.dropout(self.body(pictures).flatten(1), 0.1, self.training))


def evaluate(model, loader):
    model.eval()
    right, loss = 0, 0.0
    with torch.no_grad():
        for pictures, labels in loader:
            scores = model(pictures)
            loss += F.cross_entropy(scores, labels, reduction="sum").item()
            right += (scores.argmax(1) == labels).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)


def main():
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(7)
    train, valid = Shapes(1600, True, generator), Shapes(400, False, generator)
    loader = DataLoader(train, batch_size=40, shuffle=True)
    checks = DataLoader(valid, batch_size=100)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(5):
        model.train()
        for pictures, labels in loader:
            loss = F.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val_loss, accuracy = evaluate(model, checks)
        print(f"[{epoch}] val_loss={val_loss:.4f} val_acc={accuracy:.4f}")


main()
