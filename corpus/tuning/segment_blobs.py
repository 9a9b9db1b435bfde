"""Cells under a microscope, pixel by pixel: an encoder and a decoder, dice beside cross entropy."""

import torch
from torch import nn
from torch.nn import functional as F


class Slides(torch.utils.data.Dataset):
    """Grey pictures with round cells, and a mask of them."""

    def __init__(self, n, size, seed, flip=False):
        gen = torch.Generator().manual_seed(seed)
        grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
        centers = torch.randint(2, size - 2, (n, 3, 2, 1, 1), generator=gen)
        radius = torch.randint(2, 5, (n, 3, 1, 1), generator=gen)
        inside = ((grid - centers) ** 2).sum(2) < radius**2
        self.mask = inside.any(1)
        self.grey = 0.3 * torch.randn(n, size, size, generator=gen) + 1.2 * self.mask - 0.4
        self.flip = flip

    def __len__(self):
        return len(self.mask)

    def __getitem__(self, k):
        grey, mask = self.grey[k][None], self.mask[k][None].float()
        if self.flip and torch.rand(()) < 0.5:
            grey, mask = grey.flip(-1), mask.flip(-1)
        return {"image": grey, "mask": mask}


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))


class EncoderDecoder(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down1, self.down2 = conv_block(1, c), conv_block(c, 2 * c)
        self.middle = conv_block(2 * c, 2 * c)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.merge = conv_block(2 * c, c)
        self.drop = nn.Dropout2d(0.1)
        self.mask_head = nn.Conv2d(c, 1, 1)

    def forward(self, image):
        fine = self.down1(image)
        coarse = self.middle(self.down2(F.avg_pool2d(fine, 2)))
        both = torch.cat([fine, self.up(coarse)], dim=1)
        both = self.drop(self.merge(both))
        return self.mask_head(both)


def dice_loss(logits, mask):
    p = torch.sigmoid(logits)
    overlap = (p * mask).sum((1, 2, 3))
    return 1 - ((2 * overlap + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


def evaluate(model, loader):
    model.eval()
    meet = join = 0
    with torch.no_grad():
        for sample in loader:
            logits = model(sample["image"])
            found, truth = logits > 0, sample["mask"] > 0.5
            meet += (found & truth).sum().item()
            join += (found | truth).sum().item()
    return meet / join


def train(epochs=3):
    torch.manual_seed(9)
    slides = Slides(128, 16, seed=100, flip=True)
    loader = torch.utils.data.DataLoader(slides, batch_size=8, shuffle=True)
    val = torch.utils.data.DataLoader(Slides(20, 16, seed=200), batch_size=8)
    model = EncoderDecoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    steps = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    best = 0.0
    for epoch in range(epochs):
        model.train()
        curve = []
        for sample in loader:
            logits = model(sample["image"])
            pixel = F.binary_cross_entropy_with_logits(logits, sample["mask"])
            shape = dice_loss(logits, sample["mask"])
            total = pixel + 0.5 * shape
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            curve.append(total.item())
        steps.step()
        iou = evaluate(model, val)
        print(f"epoch {epoch}: {sum(curve) / len(curve):.3f}, IoU {iou:.3f}")
        if iou > best:
            best = iou
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "best.pt")


if __name__ == "__main__":
    train()
