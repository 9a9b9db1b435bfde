"""Points on dominoes: a vision transformer in bfloat16 autocast, all in one function, with a learned class token."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(drop)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop if self.training else 0.0)
        x = x + self.proj(attended.transpose(1, 2).reshape(n, t, w))
        x = x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        return x


class DominoViT(nn.Module):
    def __init__(self, width=32, depth=2, classes=6):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 17, width))
        self.encoders = nn.ModuleList([Encoder(width, 4, 0.1) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        for encoder in self.encoders:
            x = encoder(x)
        return self.head(self.norm(x[:, 0]))


def dominoes(count, seed):
    g = torch.Generator().manual_seed(seed)
    points = torch.randint(0, 6, (count,), generator=g)
    images = 0.2 * torch.randn(count, 1, 16, 16, generator=g)
    for image, n in zip(images, points.tolist(), strict=True):
        for cell in torch.randperm(16, generator=g)[:n].tolist():
            image[0, 4 * (cell // 4) + 1 : 4 * (cell // 4) + 3, 4 * (cell % 4) + 1 : 4 * (cell % 4) + 3] += 2.0
    return images, points


def run(epochs=3, batch=16, lr=3e-3):
    torch.manual_seed(21)
    images, points = dominoes(240, seed=1)
    new_images, new_points = dominoes(60, seed=2)
    model = DominoViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    for epoch in range(epochs):
        model.train()
        running, seen = 0.0, 0
        for index in torch.randperm(len(images)).split(batch):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(images[index])
                loss = F.cross_entropy(logits, points[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.detach().float() * len(index)
            seen += len(index)
        model.eval()
        with torch.inference_mode():
            hits = (model(new_images).argmax(-1) == new_points).sum().item()
        print(f"{epoch} loss {running / seen:.3f} hits {hits}/{len(new_points)}")


run()
