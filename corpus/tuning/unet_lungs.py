"""Lungs in small X-ray pictures: a U-Net whose encoder was trained before, gradients of parts, a resumed run."""

import copy
import pathlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE = 24


class Chests(Dataset):
    def __init__(self, patients, augment):
        self.augment = augment
        self.films, self.masks = zip(*(self.chest(p) for p in patients), strict=False)

    @staticmethod
    def chest(patient):
        rng = np.random.default_rng(patient)
        y, x = np.mgrid[:SIDE, :SIDE]
        lungs = np.zeros((SIDE, SIDE), dtype=bool)
        for side in (7, 17):
            cy, cx, h, w = 12 + rng.normal(0, 1), side + rng.normal(0, 0.7), rng.uniform(6, 9), rng.uniform(2.5, 4)
            lungs |= ((y - cy) / h) ** 2 + ((x - cx) / w) ** 2 < 1
        film = 180 - 90 * lungs + 12 * np.sin(y / 1.5) + rng.normal(0, 18, (SIDE, SIDE))
        return film.clip(0, 255).astype(np.float32), lungs

    def __len__(self):
        return len(self.films)

    def __getitem__(self, i):
        film, mask = self.films[i] / 127.5 - 1, self.masks[i]
        if self.augment:
            if np.random.rand() < 0.5:
                film, mask = film[:, ::-1], mask[:, ::-1]
            film = film + np.float32(np.random.normal(0, 0.05))
        return torch.from_numpy(film.copy())[None], torch.from_numpy(mask.copy()).float()[None]


def double(c_in, c_out):
    layers = [nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(c_out, c_out, 3, padding=1), nn.ReLU())


class Encoder(nn.Module):
    def __init__(self, widths=(8, 16)):
        super().__init__()
        self.stages = nn.ModuleList([double(a, b) for a, b in zip((1, *widths), widths, strict=False)])

    def forward(self, x):
        skips = []
        for stage in self.stages:
            x = stage(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        return x, skips


class UNet(nn.Module):
    def __init__(self, widths=(8, 16)):
        super().__init__()
        self.encoder = Encoder(widths)
        self.middle = double(widths[-1], 2 * widths[-1])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths)])
        self.merges = nn.ModuleList([double(2 * w, w) for w in reversed(widths)])
        self.out = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        x, skips = self.encoder(x)
        x = self.middle(x)
        for up, merge, skip in zip(self.ups, self.merges, reversed(skips), strict=False):
            x = merge(torch.cat([up(x), skip], dim=1))
        return self.out(x)


def pretrain_encoder(path):
    """The encoder of an older study, which told dark films from bright ones."""
    encoder, head = Encoder(), nn.Linear(16, 1)
    opt = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(8):
        bright = torch.rand(16).round()
        films = torch.randn(16, 1, SIDE, SIDE) * 0.3 + (bright - 0.5)[:, None, None, None]
        loss = F.binary_cross_entropy_with_logits(head(encoder(films)[0].mean((2, 3))).squeeze(1), bright)
        opt.zero_grad()
        loss.backward()
        opt.step()
    torch.save(encoder.state_dict(), path)


def lung_loss(logits, mask):
    chance = logits.sigmoid()
    overlap = 2 * (chance * mask).sum((1, 2, 3)) + 1
    dice = 1 - overlap / (chance.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()


@torch.no_grad()
def jaccard(model, loader):
    model.eval()
    scores = []
    for film, mask in loader:
        found = model(film).sigmoid() > 0.5
        both, either = (found & mask.bool()).sum((1, 2, 3)), (found | mask.bool()).sum((1, 2, 3))
        scores.append(both / either)
    return torch.cat(scores).mean().item()


def train_for(epochs, state, train_loader, test_loader, parts=2):
    """Goes on from `state`, if there is one, and returns the state after `epochs` more."""
    model = UNet()
    model.encoder.load_state_dict(torch.load("encoder.pt"))
    opt = torch.optim.AdamW(
        [
            {"params": model.encoder.parameters(), "lr": 1e-3},
            {"params": [p for n, p in model.named_parameters() if not n.startswith("encoder.")], "lr": 4e-3},
        ]
    )
    fade = torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)
    first = 0
    if state:
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        fade.load_state_dict(state["fade"])
        first = state["epoch"]
    for epoch in range(first, first + epochs):
        model.train()
        waiting = []
        for i, pair in enumerate(train_loader):
            waiting.append(pair)
            if len(waiting) == parts or i + 1 == len(train_loader):
                for film, mask in waiting:
                    loss = lung_loss(model(film), mask) / len(waiting)
                    loss.backward()
                opt.step()
                opt.zero_grad()
                waiting = []
        fade.step()
        print(f"epoch {epoch + 1}: loss {loss.item() * parts:.3f}, jaccard {jaccard(model, test_loader):.3f}")
    state = {"model": model.state_dict(), "opt": opt.state_dict(), "fade": fade.state_dict(), "epoch": first + epochs}
    return copy.deepcopy(state)


if __name__ == "__main__":
    torch.manual_seed(14)
    np.random.seed(14)
    train_loader = DataLoader(Chests(range(96), augment=True), batch_size=8, shuffle=True)
    test_loader = DataLoader(Chests(range(1000, 1028), augment=False), batch_size=8)
    pretrain_encoder("encoder.pt")
    state = train_for(2, None, train_loader, test_loader)
    state = train_for(2, state, train_loader, test_loader)
    torch.save(state["model"], pathlib.Path("lungs.pt"))
