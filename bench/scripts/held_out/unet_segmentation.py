"""Trains a U-Net that segments discs in noisy pictures, in half precision with a gradient scaler."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Discs(Dataset):
    """Pictures of discs and their masks."""

    def __init__(self, count, size, seed=0):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(self.seed * 100003 + index)
        axis = torch.arange(self.size, dtype=torch.float32)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        mask = torch.zeros(self.size, self.size, dtype=torch.bool)
        for _ in range(int(torch.randint(1, 5, (1,), generator=g))):
            cx, cy = torch.rand(2, generator=g) * self.size
            r = 4 + 10 * torch.rand(1, generator=g)
            mask |= (xx - cx) ** 2 + (yy - cy) ** 2 < r**2
        image = mask.float()[None].repeat(3, 1, 1) + 0.3 * torch.randn(3, self.size, self.size, generator=g)
        return {"image": image, "mask": mask[None].float()}


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(
            nn.Conv2d(i, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.up = nn.ConvTranspose2d(i, i // 2, 2, stride=2)
        self.conv = DoubleConv(i, o)

    def forward(self, x, skip):
        x = self.up(x)
        dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, channels=3, classes=1, base=16):
        super().__init__()
        self.inc = DoubleConv(channels, base)
        self.downs = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), DoubleConv(base * 2**i, base * 2 ** (i + 1))) for i in range(3)
        )
        self.ups = nn.ModuleList(Up(base * 2 ** (i + 1), base * 2**i) for i in reversed(range(3)))
        self.outc = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.outc(x)


def dice_loss(probability, target, epsilon=1e-6):
    inter = 2 * (probability * target).sum(dim=(1, 2, 3))
    total = probability.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
    return 1 - ((inter + epsilon) / (total + epsilon)).mean()


@torch.inference_mode()
def evaluate(net, loader, device, amp):
    net.eval()
    score = 0.0
    with torch.autocast(device.type if device.type != "mps" else "cpu", enabled=amp):
        for batch in loader:
            image = batch["image"].to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            true = batch["mask"].to(device=device)
            pred = (torch.sigmoid(net(image)) > 0.5).float()
            score += 1 - dice_loss(pred, true)
    net.train()
    return score / max(len(loader), 1)


def get_args():
    parser = argparse.ArgumentParser(description="Train the UNet on pictures and masks")
    parser.add_argument("--epochs", "-e", type=int, default=2)
    parser.add_argument("--batch-size", "-b", type=int, default=8)
    parser.add_argument("--learning-rate", "-l", type=float, default=1e-4, dest="lr")
    parser.add_argument("--size", type=int, default=72)
    parser.add_argument("--amp", action="store_true", default=torch.cuda.is_available())
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    args = get_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader_args = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": True}
    if not torch.cuda.is_available():
        loader_args["pin_memory"] = False
    train_loader = DataLoader(Discs(32, args.size), shuffle=True, drop_last=True, **loader_args)
    val_loader = DataLoader(Discs(8, args.size, seed=1), shuffle=False, **loader_args)

    model = UNet().to(memory_format=torch.channels_last)
    model.to(device=device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr, weight_decay=1e-8, momentum=0.999, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp)
    criterion = nn.BCEWithLogitsLoss()
    step = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        began = time.time()
        for batch in train_loader:
            images, masks = batch["image"], batch["mask"]
            assert images.shape[1] == 3, "pictures must have three channels"
            images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            masks = masks.to(device=device)
            with torch.autocast(device.type, dtype=torch.float16, enabled=args.amp):
                pred = model(images)
                loss = criterion(pred, masks) + dice_loss(torch.sigmoid(pred), masks)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            step += 1
            print(f"step {step} loss (batch) {loss.item():.4f}")
        score = evaluate(model, val_loader, device, args.amp)
        scheduler.step(score)
        print(f"epoch {epoch}: dice {score:.4f}, {time.time() - began:.1f} s")
    torch.save(model.state_dict(), f"unet_epoch{args.epochs}.pth")
