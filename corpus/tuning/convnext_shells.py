"""Shells by the shape of their spiral: a small ConvNeXt, cosine rate with warm-up, judged by averaged weights."""

import copy
import math
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SPECIES, SIDE = 4, 20
EPOCHS, WARM_UP, BATCH, RATE = 6, 10, 32, 4e-3


def draw_shell(species, rng):
    """A spiral in bytes: species differ in the number of their arms and in how tightly they are wound."""
    down, across = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2 + rng.uniform(-1.5, 1.5, (2, 1, 1))
    radius, angle = np.hypot(down, across), np.arctan2(down, across)
    arms, wound = (1, 4)[species % 2], (0.6, 1.2)[species // 2]
    wave = np.cos(arms * angle + wound * radius + rng.uniform(0, 6))
    return np.clip(120 + 80 * wave + rng.normal(0, 25, (SIDE, SIDE)), 0, 255).astype(np.uint8)


class Shells(Dataset):
    def __init__(self, count, seed, augment):
        rng = np.random.default_rng(seed)
        self.species = rng.integers(0, SPECIES, count)
        self.pictures = np.stack([draw_shell(species, rng) for species in self.species])
        self.augment = augment

    def __len__(self):
        return len(self.species)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).float().div(255).sub(0.47).div(0.25).unsqueeze(0)
        if self.augment:
            picture = picture.rot90(int(torch.randint(4, ())), (1, 2))
            picture = picture + 0.1 * torch.randn(picture.shape)
        return picture, int(self.species[index])


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (N, C, H, W)."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, width, drop_path):
        super().__init__()
        self.spread = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(0.1 * torch.ones(width))
        self.drop_path = drop_path

    def forward(self, x):
        y = self.spread(x).permute(0, 2, 3, 1)
        y = self.norm(y)
        y = self.narrow(nn.functional.gelu(self.widen(y)))
        y = (self.gamma * y).permute(0, 3, 1, 2)
        if self.training:
            kept = torch.rand(len(x), 1, 1, 1) >= self.drop_path
            y = y * kept / (1 - self.drop_path)
        return x + y


class ShellNet(nn.Module):
    def __init__(self, widths=(16, 32), depths=(2, 2), drop_path=0.1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, widths[0], 2, stride=2), ChannelNorm(widths[0]))
        self.first = nn.Sequential(*[Block(widths[0], drop_path) for _ in range(depths[0])])
        self.shrink = nn.Sequential(ChannelNorm(widths[0]), nn.Conv2d(widths[0], widths[1], 2, stride=2))
        self.second = nn.Sequential(*[Block(widths[1], drop_path) for _ in range(depths[1])])
        self.norm = nn.LayerNorm(widths[1])
        self.head = nn.Linear(widths[1], SPECIES)

    def forward(self, pictures):
        x = self.second(self.shrink(self.first(self.stem(pictures))))
        return self.head(self.norm(x.mean(dim=(2, 3))))


@torch.no_grad()
def update_average(average, model, updates):
    decay = min(0.97, (1 + updates) / (10 + updates))
    for kept, now in zip(average.parameters(), model.parameters(), strict=True):
        kept.lerp_(now, 1 - decay)


def judge(model, loader):
    model.eval()
    loss, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for pictures, species in loader:
            logits = model(pictures)
            loss += nn.functional.cross_entropy(logits, species, reduction="sum").item()
            right += (logits.argmax(1) == species).sum().item()
            seen += len(species)
    return loss / seen, right / seen


def train(path, until):
    """Goes on from the checkpoint if there is one."""
    train_set, test_set = Shells(384, seed=3, augment=True), Shells(100, seed=4, augment=False)
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    sampler = DistributedSampler(train_set, ranks, rank, shuffle=True, seed=5)
    train_loader = DataLoader(train_set, BATCH, sampler=sampler, num_workers=2)
    test_loader = DataLoader(test_set, 40)
    steps = EPOCHS * len(train_loader)

    def rate(step):
        if step < WARM_UP:
            return (step + 1) / WARM_UP
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP)))

    model = ShellNet()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    parts = {"model": model, "average": average, "optimizer": optimizer, "scheduler": scheduler}
    began = updates = 0
    if os.path.exists(path):
        kept = torch.load(path)
        for name, part in parts.items():
            part.load_state_dict(kept[name])
        began, updates = kept["epoch"], kept["updates"]
    for epoch in range(began, until):
        sampler.set_epoch(epoch)
        model.train()
        for pictures, species in train_loader:
            loss = criterion(model(pictures), species)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            updates += 1
            update_average(average, model, updates)
        test_loss, accuracy = judge(average, test_loader)
        print(f"epoch {epoch}: {test_loss:.3f}, {accuracy:.0%} of the shells named")
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save({**states, "epoch": until, "updates": updates}, path)


if __name__ == "__main__":
    torch.manual_seed(71)
    with tempfile.TemporaryDirectory() as folder:
        for until in (EPOCHS // 2, EPOCHS):
            train(os.path.join(folder, "shells.pt"), until)
