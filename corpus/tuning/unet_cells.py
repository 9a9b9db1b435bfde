"""Finds cells in pictures, pixel by pixel: a small U-Net with group norm, AdamW, ReduceLROnPlateau."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(19)


class DoubleConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.GroupNorm(2, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.norm(self.first(x)))))


class UNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.down1, self.down2 = DoubleConv(1, 8), DoubleConv(8, 16)
        self.middle = DoubleConv(16, 16)
        self.up1 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join = DoubleConv(16, 8)
        self.drop = nn.Dropout2d(0.1)
        self.out = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        skip = self.down1(x)
        h = self.down2(F.max_pool2d(skip, 2))
        h = self.middle(h)
        h = torch.cat([self.up1(h), skip], dim=1)
        return self.out(self.drop(self.join(h)))


def slides(n, seed):
    g = torch.Generator().manual_seed(seed)
    masks = torch.zeros(n, 16, 16, dtype=torch.long)
    for mask in masks:
        for kind in (1, 2):
            y, x = torch.randint(0, 11, (2,), generator=g).tolist()
            mask[y : y + 5, x : x + 5] = kind
    pictures = masks.unsqueeze(1) - 0.7 + 0.3 * torch.randn(n, 1, 16, 16, generator=g)
    return TensorDataset(pictures, masks)


def main():
    train = DataLoader(slides(96, 1), batch_size=8, shuffle=True)
    valid = DataLoader(slides(24, 2), batch_size=8)
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for epoch in range(2):
        model.train()
        for pictures, masks in train:
            optimizer.zero_grad(set_to_none=True)
            logits = model(pictures)
            loss = F.cross_entropy(logits, masks)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses, sizes = [], []
            for pictures, masks in valid:
                losses.append(F.cross_entropy(model(pictures), masks).item() * len(masks))
                sizes.append(len(masks))
        scheduler.step(sum(losses) / sum(sizes))
        print(f"epoch {epoch}: valid {sum(losses) / sum(sizes):.4f}")


if __name__ == "__main__":
    main()
