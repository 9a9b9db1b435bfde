"""Defects of bottles, a trainer class around a small ResNet: SGD, a warm-up by steps, the best weights kept."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(x + y)


class BottleNet(nn.Module):
    def __init__(self, channels=12, depth=2, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(channels) for _ in range(depth)])
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = x.flatten(2).mean(-1)
        return self.fc(self.drop(x))


def bottles(n, seed):
    g = torch.Generator().manual_seed(seed)
    defect = torch.randint(0, 3, (n,), generator=g)
    images = torch.randn(n, 3, 16, 16, generator=g)
    for i, d in enumerate(defect.tolist()):
        images[i, d, 4:10, 4:10] += 1.0
    return TensorDataset(images, defect)


class Trainer:
    def __init__(self, model, epochs):
        self.model = model
        self.epochs = epochs
        self.train_loader = DataLoader(bottles(160, seed=3), batch_size=16, shuffle=True, drop_last=True)
        self.test_loader = DataLoader(bottles(44, seed=4), batch_size=16)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        self.warmup = torch.optim.lr_scheduler.LinearLR(self.opt, 0.1, 1.0, total_iters=8)
        self.best, self.best_weights = 0.0, None

    def train_epoch(self):
        self.model.train()
        for images, defect in self.train_loader:
            self.opt.zero_grad()
            logits = self.model(images)
            loss = F.cross_entropy(logits, defect)
            loss.backward()
            self.opt.step()
            self.warmup.step()
        return loss.item()

    @torch.no_grad()
    def test(self):
        self.model.eval()
        right = 0
        for images, defect in self.test_loader:
            logits = self.model(images)
            right += (logits.argmax(1) == defect).sum().item()
        return right / len(self.test_loader.dataset)

    def fit(self):
        for epoch in range(self.epochs):
            loss = self.train_epoch()
            accuracy = self.test()
            if accuracy >= self.best:
                self.best, self.best_weights = accuracy, copy.deepcopy(self.model.state_dict())
            print(f"[{epoch}] {loss:.3f} {accuracy:.3f}")
        self.model.load_state_dict(self.best_weights)
        torch.save(self.best_weights, "bottles.pt")


if __name__ == "__main__":
    torch.manual_seed(5)
    trainer = Trainer(BottleNet(), epochs=3)
    trainer.fit()
