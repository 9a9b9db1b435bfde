"""Kinds of shells in small photographs: a pre-activation ResNet, flips and brightness, best weights tested."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

KINDS = 4


def photographs(each, seed):
    """Bytes, kind after kind: rings and stripes of several widths."""
    g = torch.Generator().manual_seed(seed)
    row, column = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    pictures, kinds = [], []
    for kind in range(KINDS):
        for _ in range(each):
            middle = 6 + 4 * torch.rand(2, generator=g)
            away = ((row - middle[0]) ** 2 + (column - middle[1]) ** 2).sqrt()
            wave = torch.sin(away * (0.8 + 0.5 * (kind % 2))) if kind < 2 else torch.sin(row * (0.7 + 0.6 * (kind % 2)))
            picture = 120 + 70 * wave + 25 * torch.randn(3, 16, 16, generator=g)
            pictures.append(picture.clamp(0, 255).to(torch.uint8))
            kinds.append(kind)
    return torch.stack(pictures), torch.tensor(kinds)


class Shells(Dataset):
    def __init__(self, pictures, kinds, augment=False):
        self.pictures, self.kinds, self.augment = pictures, kinds, augment

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        picture = self.pictures[index].float() / 255
        if self.augment:
            if torch.rand(()) < 0.5:
                picture = picture.flip(2)
            picture = picture + 0.1 * torch.randn(3, 1, 1)
        return (picture - 0.5) / 0.25, self.kinds[index]


class Block(nn.Module):
    def __init__(self, channels, out, stride=1):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(channels, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        return self.short(x) + y


class ShellNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12))
        self.blocks = nn.Sequential(Block(12, 12), Block(12, 24, 2), Block(24, 32, 2))
        self.norm = nn.BatchNorm2d(32)
        self.kind = nn.Linear(32, KINDS)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        x = F.relu(self.norm(x)).mean(dim=(2, 3))
        return self.kind(x)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss, right, count = 0.0, 0, 0
    for picture, kind in loader:
        scores = model(picture)
        loss += F.cross_entropy(scores, kind, reduction="sum").item()
        right += (scores.argmax(dim=1) == kind).sum().item()
        count += len(kind)
    return loss / count, right / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    pictures, kinds = photographs(75, seed=1)
    order = torch.randperm(len(kinds)).tolist()
    train_ids, valid_ids = order[60:], order[:60]
    train_set = Shells(pictures, kinds, augment=True)
    valid_set = Shells(pictures[valid_ids], kinds[valid_ids])
    test_set = Shells(*photographs(15, seed=2))
    train_loader = DataLoader(
        train_set, batch_size=args.batch, sampler=SubsetRandomSampler(train_ids), num_workers=args.workers
    )
    valid_loader = DataLoader(valid_set, batch_size=32)
    test_loader = DataLoader(test_set, batch_size=32)
    model = ShellNet()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 5e-4}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=args.lr, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3], gamma=0.3)
    best, best_loss = copy.deepcopy(model.state_dict()), float("inf")
    for epoch in range(args.epochs):
        model.train()
        for picture, kind in train_loader:
            scores = model(picture)
            loss = F.cross_entropy(scores, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        valid_loss, right = evaluate(model, valid_loader)
        print(f"epoch {epoch}: validation {valid_loss:.3f}, right {right:.2f}")
        if valid_loss < best_loss:
            best, best_loss = copy.deepcopy(model.state_dict()), valid_loss
    model.load_state_dict(best)
    print("test", evaluate(model, test_loader))


if __name__ == "__main__":
    main()
