"""Trees from the air, told by their crowns: a small ViT in half precision, taught by the votes of several people."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

KINDS, SIDE, PATCH = 4, 16, 4
EPOCHS, WARMUP = 4, 10


class Crowns(Dataset):
    def __init__(self, per_kind, seed, augment=False):
        rng = np.random.default_rng(seed)
        self.augment = augment
        kind = np.repeat(np.arange(KINDS), per_kind)
        down, across = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
        shapes = np.stack([down**2 + across**2 < 0.5, abs(down) < 0.3, abs(across) < 0.3, abs(down * across) < 0.1])
        self.images = (shapes[kind] + rng.normal(0, 0.5, (len(kind), SIDE, SIDE)) - 0.35).astype(np.float32)
        doubt = rng.dirichlet(np.ones(KINDS), len(kind))
        self.votes = (0.8 * np.eye(KINDS)[kind] + 0.2 * doubt).astype(np.float32)
        self.kind = kind

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i])
        if self.augment:
            image = image + 0.3 * torch.randn(())
        return image, torch.from_numpy(self.votes[i]), int(self.kind[i])


def waves(count, width):
    """The usual sines and cosines of positions."""
    angle = torch.arange(count).unsqueeze(1) / 100 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (part.view(b, n, self.heads, -1).transpose(1, 2) for part in self.to_qkv(x).chunk(3, dim=-1))
        weights = (q @ k.transpose(2, 3) * (d // self.heads) ** -0.5).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class ViT(nn.Module):
    def __init__(self, width=32, heads=4, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.register_buffer("places", waves((SIDE // PATCH) ** 2 + 1, width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.kind = nn.Linear(width, KINDS)

    def forward(self, images):
        x = self.patches(images.unsqueeze(1)).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.kind(self.norm(x[:, 0]))


def make_train_step(model, optimizer, scaler, schedule):
    def train_step(images, votes):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(images)
        loss = F.kl_div(F.log_softmax(logits.float(), dim=1), votes, reduction="batchmean")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        return loss.item()

    return train_step


def share_right(model, loader):
    model.eval()
    right = 0
    with torch.inference_mode():
        for images, _, kind in loader:
            right += int((model(images).argmax(-1) == kind).sum())
    return right / len(loader.dataset)


torch.manual_seed(17)
train_loader = DataLoader(Crowns(56, seed=1, augment=True), batch_size=16, shuffle=True)
test_loader = DataLoader(Crowns(13, seed=2), batch_size=16)
model = ViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
train_step = make_train_step(model, optimizer, scaler, schedule)
for epoch in range(EPOCHS):
    model.train()
    losses = [train_step(images, votes) for images, votes, _ in train_loader]
    print(f"epoch {epoch}: {losses[0]:.3f} to {losses[-1]:.3f}, {share_right(model, test_loader):.3f} right")
