"""Which of six plates a stamp was printed from: a small ResNet, jittered prints, SGD with a warm-up and a cosine."""

import argparse
import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PLATES, SIDE = 6, 16
MEAN = torch.tensor([0.55, 0.5, 0.45]).view(3, 1, 1)
STD = torch.tensor([0.25, 0.25, 0.25]).view(3, 1, 1)


def print_stamps(each, rng):
    """Stamps as bytes, plate after plate: every plate has a pattern of its own, ink and paper differ."""
    rows, cols = np.mgrid[0:SIDE, 0:SIDE]
    centre = np.hypot(rows - SIDE / 2, cols - SIDE / 2)
    patterns = [
        lambda p: np.sin(rows + p),
        lambda p: np.sin(cols + p),
        lambda p: np.sin(0.7 * (rows + cols) + p),
        lambda p: np.sin(rows + p) * np.sin(cols + p),
        lambda p: np.sin(centre + p),
        lambda p: np.sin(0.5 * rows + p) + np.sin(0.5 * cols + p),
    ]
    images, plates = [], []
    for plate, pattern in enumerate(patterns):
        for _ in range(each):
            ink = rng.uniform(0.1, 0.4, 3) * pattern(rng.uniform(0, 6))[..., None]
            paper = rng.uniform(0.35, 0.65, 3) + 0.16 * rng.standard_normal((SIDE, SIDE, 3))
            images.append(np.clip(255 * (paper + ink), 0, 255).astype(np.uint8).transpose(2, 0, 1))
            plates.append(plate)
    return np.stack(images), np.array(plates)


class Stamps(Dataset):
    def __init__(self, images, plates, augment):
        self.images = images.astype(np.float32) / 255
        self.plates = torch.from_numpy(plates)
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i])
        if self.augment:
            image = image * (0.8 + 0.4 * torch.rand(3, 1, 1))
            image = image + 0.05 * torch.randn(3, SIDE, SIDE)
            if torch.rand(()) < 0.5:
                image = image.flip(2)
        return (image - MEAN) / STD, self.plates[i]


class Block(nn.Module):
    def __init__(self, inner, outer, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.skip = nn.Identity()
        if stride != 1 or inner != outer:
            self.skip = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.skip(x))


class StampNet(nn.Module):
    def __init__(self, width=6, depth=2):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        stages = []
        for stage in range(3):
            inner, outer = width * 2 ** max(stage - 1, 0), width * 2**stage
            blocks = [Block(inner, outer, stride=1 if stage == 0 else 2)]
            blocks += [Block(outer, outer) for _ in range(depth - 1)]
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(width * 4, PLATES)

    def forward(self, x):
        x = self.stages(self.stem(x))
        x = x.mean(dim=(2, 3))
        return self.fc(x)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right, loss, count = 0, 0.0, 0
    for images, plates in loader:
        logits = model(images)
        loss += F.cross_entropy(logits, plates, reduction="sum").item()
        right += (logits.argmax(dim=1) == plates).sum().item()
        count += len(plates)
    return loss / count, right / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.08)
    args = parser.parse_args()

    torch.manual_seed(17)
    rng = np.random.default_rng(17)
    images, plates = print_stamps(80, rng)
    held = rng.random(len(images)) < 0.2
    train_set = Stamps(images[~held], plates[~held], augment=True)
    val_set = Stamps(images[held], plates[held], augment=False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=50)

    model = StampNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    steps, warm = args.epochs * len(train_loader), 6
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: (s + 1) / warm if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / (steps - warm))),
    )
    best, best_accuracy = None, 0.0
    for epoch in range(args.epochs):
        model.train()
        running, seen = 0.0, 0
        for images, plates in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), plates)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
            running += loss.item() * len(plates)
            seen += len(plates)
        val_loss, accuracy = evaluate(model, val_loader)
        print(f"epoch {epoch} train {running / seen:.3f} val {val_loss:.3f} plates told {accuracy:.1%}")
        if accuracy >= best_accuracy:
            best_accuracy = accuracy
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    torch.save({"model": best, "accuracy": best_accuracy}, "stamps.pt")
    print(f"kept {evaluate(model, val_loader)[1]:.1%}")


if __name__ == "__main__":
    main()
