"""Crops on satellite tiles, pixel by pixel: float16 autocast and a scaled loss, clouds ignored, mean overlap."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, Dataset

CROPS, CLOUD = 4, 255


class Tiles(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        field = torch.randint(0, CROPS, (count, 4, 4), generator=g)
        self.crop = field.repeat_interleave(4, 1).repeat_interleave(4, 2)
        signature = torch.eye(CROPS)[self.crop].permute(0, 3, 1, 2)
        self.bands = signature + 0.5 * torch.randn(signature.shape, generator=g)
        cloud = F.interpolate(torch.rand(count, 1, 4, 4, generator=g), scale_factor=4.0)[:, 0] < 0.15
        self.bands[cloud.unsqueeze(1).expand_as(self.bands)] = 2.0
        self.crop[cloud] = CLOUD

    def __len__(self):
        return len(self.crop)

    def __getitem__(self, i):
        return self.bands[i].clone(), self.crop[i].clone()


class PixelNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(CROPS, c, 3, padding=1),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=2, dilation=2),
            nn.BatchNorm2d(c),
            nn.ReLU(),
        )
        self.head = nn.Conv2d(c, CROPS, 1)

    def forward(self, bands):
        return self.head(self.body(bands))


def train_one_epoch(net, loader, optimizer, scaler):
    net.train()
    for bands, crop in loader:
        optimizer.zero_grad(set_to_none=True)
        with autocast("cpu", dtype=torch.float16):
            logits = net(bands)
        loss = F.cross_entropy(logits.float(), crop, ignore_index=CLOUD)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


@torch.no_grad()
def mean_iou(net, loader):
    net.eval()
    table = torch.zeros(CROPS, CROPS, dtype=torch.long)
    for bands, crop in loader:
        guess = net(bands).argmax(dim=1)
        seen = crop != CLOUD
        table += torch.bincount(CROPS * crop[seen] + guess[seen], minlength=CROPS**2).view(CROPS, CROPS)
    hit = table.diag()
    return (hit / (table.sum(0) + table.sum(1) - hit).clamp(min=1)).mean().item()


def main():
    torch.manual_seed(140)
    train, test = DataLoader(Tiles(96, 1), 8, shuffle=True), DataLoader(Tiles(22, 2), 8)
    net = PixelNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    scaler = GradScaler("cpu", init_scale=256.0)
    for epoch in range(3):
        loss = train_one_epoch(net, train, optimizer, scaler)
        print(f"{epoch} {loss:.3f} {mean_iou(net, test):.3f}")
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        torch.save(state, "crops.pt")


if __name__ == "__main__":
    main()
