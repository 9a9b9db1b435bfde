"""Flags by a small vision transformer: float16 autocast with a loss scale, class token, patches by a convolution."""

import math

import torch
from torch import nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

SIZE, PATCH, WIDTH, NATIONS = 16, 4, 32, 6
EPOCHS, BATCH = 5, 24


def flags(count, seed):
    """Stripes that lie or stand, in three pairs of colours, as floats between zero and one."""
    g = torch.Generator().manual_seed(seed)
    nation = torch.randint(NATIONS, (count,), generator=g)
    colours = torch.tensor(
        [[[0.9, 0.1, 0.1], [0.9, 0.9, 0.9]], [[0.1, 0.2, 0.8], [0.9, 0.8, 0.1]], [[0.1, 0.6, 0.2], [0.1, 0.1, 0.1]]]
    )
    width = torch.randint(3, 6, (count,), generator=g)
    stripe = (torch.arange(SIZE)[None] // width[:, None]) % 2
    lying = stripe[:, :, None].expand(-1, -1, SIZE)
    stripe = torch.where((nation % 2 == 0)[:, None, None], lying, lying.transpose(1, 2))
    pictures = colours[nation // 2][torch.arange(count)[:, None, None], stripe].permute(0, 3, 1, 2)
    return pictures + 0.15 * torch.randn(count, 3, SIZE, SIZE, generator=g), nation


class Attention(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.05)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        x = (self.drop(weights) @ v).transpose(1, 2).reshape(n, t, WIDTH)
        return self.out(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.Dropout(0.05))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class FlagViT(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, (SIZE // PATCH) ** 2 + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
        self.norm = nn.LayerNorm(WIDTH)
        self.nation = nn.Linear(WIDTH, NATIONS)
        self.register_buffer("mean", torch.full((1, 3, 1, 1), 0.5))

    def forward(self, pictures):
        x = self.patches((pictures - self.mean) / 0.3).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.places
        x = self.norm(self.blocks(x))
        return self.nation(x[:, 0])


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad(), autocast("cpu", dtype=torch.float16):
        for pictures, nation in loader:
            right += (model(pictures).argmax(1) == nation).sum().item()
            total += len(nation)
    return right / total


def main():
    torch.manual_seed(14)
    train_set = TensorDataset(*flags(288, seed=1))
    test_set = TensorDataset(*flags(70, seed=2))
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=32)
    model = FlagViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train_loader))
    scaler = GradScaler("cpu", init_scale=1024.0)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(EPOCHS):
        model.train()
        for pictures, nation in train_loader:
            optimizer.zero_grad()
            with autocast("cpu", dtype=torch.float16):
                scores = model(pictures)
                loss = loss_fn(scores.float(), nation)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            cosine.step()
        print(f"epoch {epoch}: loss {loss.item():.3f} in the last batch, right {accuracy(model, test_loader):.3f}")


if __name__ == "__main__":
    main()
