"""Pen strokes in eight directions as bytes: a small ConvNet, shifted copies drawn in worker processes, argparse."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, DIRECTIONS = 16, 8


class Strokes(Dataset):
    def __init__(self, count, seed, shift=0):
        rng = np.random.default_rng(seed)
        self.shift = shift
        self.labels = rng.integers(0, DIRECTIONS, count)
        self.pixels = np.zeros((count, SIZE, SIZE), dtype=np.uint8)
        for i, label in enumerate(self.labels):
            angle = 2 * np.pi * label / DIRECTIONS + rng.normal(0, 0.12)
            for t in np.linspace(0, 6, 24):  # ink fades along the stroke
                row, col = int(8 + t * np.sin(angle)), int(8 + t * np.cos(angle))
                self.pixels[i, row, col] = 255 - 30 * t
            self.pixels[i] |= rng.integers(0, 40, (SIZE, SIZE), dtype=np.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = torch.from_numpy(self.pixels[i]).float().div(255).sub(0.1).div(0.2)
        if self.shift:
            dy, dx = torch.randint(-self.shift, self.shift + 1, (2,)).tolist()
            image = image.roll((dy, dx), dims=(0, 1))
        return image[None], int(self.labels[i])


class StrokeNet(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.body = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(2 * channels * 16, 48, bias=False),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(48, DIRECTIONS),
        )

    def forward(self, image):
        return self.head(self.body(self.stem(image)))

    def predict(self, image):
        return self(image).softmax(dim=1)


def evaluate(model, loader):
    was_training = model.training
    model.eval()
    right, sure = 0, 0.0
    with torch.inference_mode():
        for image, label in loader:
            chance, guess = model.predict(image).max(dim=1)
            right += (guess == label).sum().item()
            sure += chance.sum().item()
    model.train(was_training)
    return right / len(loader.dataset), sure / len(loader.dataset)


def gradient_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--smooth", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_loader = DataLoader(Strokes(448, seed=1, shift=1), batch_size=32, shuffle=True, num_workers=2)
    test_loader = DataLoader(Strokes(100, seed=2), batch_size=50)
    model = StrokeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3], gamma=0.3)
    model.train()
    for epoch in range(args.epochs):
        total = seen = 0
        for image, label in train_loader:
            optimizer.zero_grad()
            logits = model(image)
            loss = F.cross_entropy(logits, label, label_smoothing=args.smooth)
            loss.backward()
            norm = gradient_norm(model)
            optimizer.step()
            total += loss.item() * len(label)
            seen += len(label)
        schedule.step()
        right, sure = evaluate(model, test_loader)
        print(f"epoch {epoch} loss {total / seen:.3f} |g| {norm:.2f} right {right:.2%} sure {sure:.2f}")
    torch.save({"model": model.state_dict(), "epochs": args.epochs}, "strokes.pt")


if __name__ == "__main__":
    main()
