"""Ferns by the shape of their leaves: a residual network, augmented pictures from two workers, the best epoch kept."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = 4
SIDE = 16
MEAN, STD = (0.34, 0.45, 0.265), (0.21, 0.23, 0.20)


def draw_ferns(count, seed):
    """Green pictures, uint8: stripes along one of four directions, with noise and a random shift."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, SPECIES, count)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    pictures = np.empty((count, 3, SIDE, SIDE), dtype=np.uint8)
    for k, label in enumerate(labels):
        angle = np.pi * label / SPECIES
        wave = np.sin(0.9 * (rows * np.sin(angle) + columns * np.cos(angle)) + rng.uniform(0, 6))
        base = np.array([85, 115, 65])[:, None, None] + np.array([25, 35, 15])[:, None, None] * wave
        pictures[k] = np.clip(base + rng.normal(0, 55, (3, SIDE, SIDE)), 0, 255)
    return pictures, labels


class Ferns(Dataset):
    def __init__(self, pictures, labels, augment):
        self.pictures, self.labels, self.augment = pictures, labels, augment
        self.mean = torch.tensor(MEAN).view(3, 1, 1)
        self.std = torch.tensor(STD).view(3, 1, 1)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).float() / 255
        picture = (picture - self.mean) / self.std
        if self.augment:
            picture = self.shake(picture)
        return picture, int(self.labels[index])

    def shake(self, picture):
        if torch.rand(()) < 0.5:
            picture = picture.flip((1, 2))  # turned by half, stripes keep their direction
        dy, dx = torch.randint(-2, 3, (2,)).tolist()
        picture = picture.roll((dy, dx), dims=(1, 2))
        return picture + 0.05 * torch.randn(picture.shape)


class Residual(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.skip = nn.Identity()
        if stride != 1 or inside != outside:
            self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.skip(x))


class FernNet(nn.Module):
    def __init__(self, widths=(8, 16, 24)):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()
        )
        self.stage1 = Residual(widths[0], widths[1], stride=2)
        self.stage2 = Residual(widths[1], widths[2], stride=2)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(widths[2], SPECIES)

    def forward(self, x):
        x = self.stage2(self.stage1(self.stem(x)))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.fc(self.dropout(x))


def train_one_epoch(net, loader, opt, criterion):
    net.train()
    total, seen = 0.0, 0
    for pictures, species in loader:
        opt.zero_grad(set_to_none=True)
        scores = net(pictures)
        loss = criterion(scores, species)
        loss.backward()
        opt.step()
        total += loss.item() * len(species)
        seen += len(species)
    return total / seen


@torch.inference_mode()
def accuracy(net, loader):
    net.eval()
    right = sum((net(pictures).argmax(1) == species).sum().item() for pictures, species in loader)
    return right / len(loader.dataset)


def main(epochs=4, batch_size=20):
    torch.manual_seed(90)
    train_set = Ferns(*draw_ferns(300, seed=1), augment=True)
    valid_set = Ferns(*draw_ferns(66, seed=2), augment=False)
    train_loader = DataLoader(train_set, batch_size, shuffle=True, num_workers=2)
    valid_loader = DataLoader(valid_set, 32)
    net = FernNet()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    opt = torch.optim.SGD(net.parameters(), lr=0.08, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
    best, best_state = -1.0, None
    for epoch in range(epochs):
        loss = train_one_epoch(net, train_loader, opt, criterion)
        scheduler.step()
        score = accuracy(net, valid_loader)
        if score > best:
            best = score
            best_state = copy.deepcopy(net.state_dict())
        print(f"epoch {epoch + 1}/{epochs} loss {loss:.3f} accuracy {score:.3f}")
    net.load_state_dict(best_state)
    torch.save({"net": net.state_dict(), "accuracy": best}, "ferns.pt")
    print(f"kept {best:.3f}, again {accuracy(net, valid_loader):.3f}")


if __name__ == "__main__":
    main()
