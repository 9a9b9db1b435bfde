"""Segmentation by a small U-Net in float16 with a GradScaler, masks, and a score for each class."""

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def double(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(4, out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = double(3, 16), double(16, 32), nn.ConvTranspose2d(32, 16, 2, 2)
        self.join, self.head = double(32, 16), nn.Conv2d(16, 5, 1)

    def forward(self, x):
        high = self.down(x)
        low = self.up(self.deep(nn.functional.max_pool2d(high, 2)))
        return self.head(self.join(torch.cat([high, low], dim=1)))


model = UNet().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device.type)
for step in range(6):
    image, mask = torch.randn(4, 3, 64, 64).to(device), torch.randint(0, 5, (4, 64, 64)).to(device)
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        scores = model(image)
        loss = nn.functional.cross_entropy(scores, mask)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    predicted = scores.argmax(1)
    shares = [((predicted == kind) & (mask == kind)).sum().item() for kind in range(5)]
    print(step, loss.item(), scaler.get_scale(), shares)
