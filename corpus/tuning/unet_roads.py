"""Roads in aerial pictures: a small UNet, binary masks, cross-entropy and overlap together, flips as augmentation."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Roads(Dataset):
    def __init__(self, count, seed, augment=False):
        g = torch.Generator().manual_seed(seed)
        self.augment = augment
        self.pictures = 0.4 + 0.1 * torch.randn(count, 3, 16, 16, generator=g)
        self.masks = torch.zeros(count, 1, 16, 16)
        for i in range(count):
            at, wide = torch.randint(2, 11, (2,), generator=g).tolist(), 3
            self.masks[i, 0, at[0] : at[0] + wide] = 1
            self.masks[i, 0, :, at[1] : at[1] + wide] = 1
        self.pictures += 0.3 * self.masks

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        picture, mask = self.pictures[i], self.masks[i]
        if self.augment and torch.rand(()) < 0.5:
            picture, mask = picture.flip(-1), mask.flip(-1)
        return (picture - 0.45) / 0.2, mask


def double(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down1, self.down2 = double(3, c), double(c, 2 * c)
        self.bottom = double(2 * c, 2 * c)
        self.up2, self.up1 = double(4 * c, c), double(2 * c, c)
        self.drop = nn.Dropout2d(0.1)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        z = self.drop(self.bottom(F.max_pool2d(b, 2)))
        z = self.up2(torch.cat([F.interpolate(z, scale_factor=2.0), b], dim=1))
        z = self.up1(torch.cat([F.interpolate(z, scale_factor=2.0), a], dim=1))
        return self.out(z)


def overlap_loss(logits, mask):
    p = torch.sigmoid(logits)
    inter = (p * mask).sum(dim=(1, 2, 3))
    total = p.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3))
    return (1 - (2 * inter + 1) / (total + 1)).mean()


@torch.no_grad()
def iou(net, loader):
    net.eval()
    inter = union = 0
    for picture, mask in loader:
        guess = torch.sigmoid(net(picture)) > 0.5
        inter += (guess & (mask > 0)).sum().item()
        union += (guess | (mask > 0)).sum().item()
    net.train()
    return inter / max(union, 1)


if __name__ == "__main__":
    torch.manual_seed(16)
    train_loader = DataLoader(Roads(128, seed=1, augment=True), batch_size=8, shuffle=True)
    val_loader = DataLoader(Roads(28, seed=2), batch_size=8)
    net = UNet()
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9)
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.7)
    for epoch in range(2):
        for picture, mask in train_loader:
            logits = net(picture)
            bce = F.binary_cross_entropy_with_logits(logits, mask)
            dice = overlap_loss(logits, mask)
            loss = bce + dice
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
        sched.step()
        print(f"{epoch} bce {bce.item():.3f} dice {dice.item():.3f} iou {iou(net, val_loader):.3f}")
