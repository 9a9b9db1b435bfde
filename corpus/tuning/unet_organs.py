"""Liver and kidney in slices of a scan: a small U-Net in mixed precision, gradients gathered over two micro-batches."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(6)
SIZE, MICRO, GATHER, EPOCHS = 24, 8, 2, 6
ORGANS = ("liver", "kidney")


def scan(count: int, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Slices with a large bright ellipse and a small dim one, on noise; and a mask for each organ."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    place = torch.rand(count, 4, 1, 1, generator=g)
    liver = ((x + 0.2 + 0.5 * place[:, 0]) / 0.5) ** 2 + ((y - 0.6 * place[:, 1] + 0.3) / 0.35) ** 2 < 1
    kidney = ((x - 0.2 - 0.5 * place[:, 2]) / 0.2) ** 2 + ((y - 0.8 * place[:, 3] + 0.4) / 0.3) ** 2 < 1
    masks = torch.stack([liver, kidney], dim=1).float()
    slices = masks[:, :1] - 0.7 * masks[:, 1:] + 0.4 * torch.randn(count, 1, SIZE, SIZE, generator=g)
    return slices, masks


def block(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.SiLU())


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x):
        return x + self.body(x)


class UNet(nn.Module):
    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.down1 = block(1, width)
        self.down2 = block(width, 2 * width)
        self.bottom = nn.Sequential(*[Residual(2 * width) for _ in range(depth)])
        self.up2 = block(4 * width, width)
        self.up1 = block(2 * width, width)
        self.head = nn.Conv2d(width, len(ORGANS), 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        h = self.bottom(F.max_pool2d(two, 2))
        h = self.up2(torch.cat([F.interpolate(h, scale_factor=2), two], dim=1))
        h = self.up1(torch.cat([F.interpolate(h, scale_factor=2), one], dim=1))
        return self.head(h)


def organ_loss(logits, masks):
    """Cross-entropy of each pixel and the part of each organ that is missed."""
    pixels = F.binary_cross_entropy_with_logits(logits, masks)
    p = torch.sigmoid(logits)
    dice = (2 * (p * masks).sum((2, 3)) + 1) / (p.sum((2, 3)) + masks.sum((2, 3)) + 1)
    return pixels + 0.5 * (1 - dice.mean())


class Trainer:
    def __init__(self, model: nn.Module, train, val) -> None:
        self.model, self.train, self.val = model, train, val
        self.order = torch.Generator().manual_seed(1)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
        updates = EPOCHS * -(-len(train[0]) // (MICRO * GATHER))
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=updates)

    def batches(self):
        slices, masks = self.train
        for rows in torch.randperm(len(slices), generator=self.order).split(MICRO):
            x, y = slices[rows], masks[rows]
            yield x + 0.1 * torch.randn_like(x), y

    def epoch(self) -> float:
        self.model.train()
        total = 0.0
        batches = list(self.batches())
        self.optimizer.zero_grad()
        for at, (x, y) in enumerate(batches):
            gathered = min(GATHER, len(batches) - at // GATHER * GATHER)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.model(x)
            loss = organ_loss(logits.float(), y) / gathered
            loss.backward()
            total += loss.item() * gathered * len(x)
            if (at + 1) % GATHER == 0 or at + 1 == len(batches):
                nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
        return total / len(self.train[0])

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """The overlap of what is found with what is there, for each organ."""
        self.model.eval()
        both = either = 0
        for x, y in zip(self.val[0].split(16), self.val[1].split(16), strict=True):
            logits = self.model(x)
            found = torch.sigmoid(logits) > 0.5
            both = both + (found & (y > 0)).sum((0, 2, 3))
            either = either + (found | (y > 0)).sum((0, 2, 3))
        return (both / either).tolist()

    def run(self) -> None:
        for number in range(1, EPOCHS + 1):
            loss = self.epoch()
            overlaps = ", ".join(f"{o} {v:.3f}" for o, v in zip(ORGANS, self.evaluate(), strict=True))
            print(f"epoch {number} loss {loss:.4f} overlap {overlaps}")
        torch.save({"model": self.model.state_dict(), "organs": ORGANS}, "organs.pt")


if __name__ == "__main__":
    g = torch.Generator().manual_seed(5)
    Trainer(UNet(), scan(100, g), scan(40, g)).run()
