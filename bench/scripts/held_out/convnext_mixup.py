"""Trains a ConvNeXt-like classifier with drop path, mixup and cutmix, layer-wise decay and an average of its weights.

Needs numpy.
"""

import argparse
import logging
import math
import os
from copy import deepcopy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

_logger = logging.getLogger("train")
parser = argparse.ArgumentParser(description="Picture training")
parser.add_argument("--dims", type=int, nargs="+", default=[32, 64, 128, 256])
parser.add_argument("--depths", type=int, nargs="+", default=[1, 1, 2, 1])
parser.add_argument("--drop-path", type=float, default=0.1)
parser.add_argument("--mixup", type=float, default=0.8)
parser.add_argument("--cutmix", type=float, default=1.0)
parser.add_argument("--smoothing", type=float, default=0.1)
parser.add_argument("--num-classes", type=int, default=100)
parser.add_argument("--img-size", type=int, default=96)
parser.add_argument("-b", "--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=4e-3)
parser.add_argument("--layer-decay", type=float, default=0.8)
parser.add_argument("--model-ema-decay", type=float, default=0.99)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--channels-last", action="store_true", default=True)
parser.add_argument("-j", "--workers", type=int, default=2)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--output", default="output")


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if keep > 0.0:
            mask.div_(keep)
        return x * mask


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim, drop_path, layer_scale=1e-6):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1, self.act, self.pwconv2 = nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        return x + self.drop_path(y.permute(0, 3, 1, 2))


class ConvNeXt(nn.Module):
    def __init__(self, depths, dims, classes, drop_path):
        super().__init__()
        rates = torch.linspace(0, drop_path, sum(depths)).tolist()
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 4, 4), LayerNorm2d(dims[0]))
        self.stages = nn.ModuleList()
        previous = dims[0]
        for i, (depth, dim) in enumerate(zip(depths, dims, strict=True)):
            down = nn.Sequential(LayerNorm2d(previous), nn.Conv2d(previous, dim, 2, 2)) if i else nn.Identity()
            self.stages.append(nn.Sequential(down, *[Block(dim, rates.pop(0)) for _ in range(depth)]))
            previous = dim
        self.norm, self.head = nn.LayerNorm(previous), nn.Linear(previous, classes)
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(self.norm(x.mean([-2, -1])))


def param_groups(model, decay, layer_decay, lr):
    groups = {}
    depth = len(model.stages) + 1
    for name, p in model.named_parameters():
        layer = 0 if name.startswith("stem") else int(name.split(".")[1]) + 1 if name.startswith("stages") else depth
        plain = p.ndim <= 1
        key = (layer, plain)
        if key not in groups:
            scale = layer_decay ** (depth - layer)
            groups[key] = {"params": [], "weight_decay": 0.0 if plain else decay, "lr": lr * scale, "lr_scale": scale}
        groups[key]["params"].append(p)
    return list(groups.values())


class Mixer:
    def __init__(self, args):
        self.args = args

    def target(self, y, lam):
        off = self.args.smoothing / self.args.num_classes
        on = 1 - self.args.smoothing + off

        def hot(labels):
            x = torch.full((labels.size(0), self.args.num_classes), off, device=labels.device)
            return x.scatter_(1, labels.view(-1, 1), on)

        return hot(y) * lam + hot(y.flip(0)) * (1.0 - lam)

    def __call__(self, x, y):
        if np.random.rand() < 0.5:
            lam = np.random.beta(self.args.cutmix, self.args.cutmix)
            h, w = x.shape[-2:]
            ratio = np.sqrt(1 - lam)
            ch, cw = int(h * ratio), int(w * ratio)
            cy, cx = np.random.randint(0, h), np.random.randint(0, w)
            yl, yh = np.clip([cy - ch // 2, cy + ch // 2], 0, h)
            xl, xh = np.clip([cx - cw // 2, cx + cw // 2], 0, w)
            x[:, :, yl:yh, xl:xh] = x.flip(0)[:, :, yl:yh, xl:xh]
            lam = 1.0 - (yh - yl) * (xh - xl) / float(h * w)
        else:
            lam = np.random.beta(self.args.mixup, self.args.mixup)
            x_flipped = x.flip(0).mul_(1.0 - lam)
            x.mul_(lam).add_(x_flipped)
        return x, self.target(y, lam)


class Pictures(Dataset):
    def __init__(self, n, size, classes):
        self.n, self.size, self.classes = n, size, classes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        picture = rng.integers(0, 256, (3, self.size, self.size), dtype=np.uint8)
        return picture, int(rng.integers(self.classes))


def fast_collate(batch):
    pictures = torch.from_numpy(np.stack([b[0] for b in batch]))
    return pictures, torch.tensor([b[1] for b in batch], dtype=torch.int64)


class ModelEma(nn.Module):
    def __init__(self, model, decay):
        super().__init__()
        self.module = deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, m in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            e.copy_(self.decay * e + (1.0 - self.decay) * m)


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, val, n=1):
        self.sum, self.count = self.sum + val * n, self.count + n
        self.avg = self.sum / self.count


def main():
    logging.basicConfig(level=logging.INFO)
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    model = ConvNeXt(args.depths, args.dims, args.num_classes, args.drop_path)
    _logger.info("Model created, param count: %d", sum(m.numel() for m in model.parameters()))
    model.to(device=device)
    if args.channels_last:
        model.to(memory_format=torch.channels_last)
    model_ema = ModelEma(model, args.model_ema_decay)
    optimizer = torch.optim.AdamW(param_groups(model, 0.05, args.layer_decay, args.lr), lr=args.lr)
    loader = DataLoader(
        Pictures(96, args.img_size, args.num_classes),
        args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=fast_collate,
        pin_memory=device.type == "cuda",
        drop_last=True,
        persistent_workers=args.workers > 0,
    )
    mean = torch.tensor([0.485 * 255, 0.456 * 255, 0.406 * 255], device=device).view(1, 3, 1, 1)
    std = torch.tensor([0.229 * 255, 0.224 * 255, 0.225 * 255], device=device).view(1, 3, 1, 1)
    mixer = Mixer(args)
    losses = AverageMeter()
    updates = args.epochs * len(loader)
    num_updates = 0
    for epoch in range(args.epochs):
        model.train()
        for batch_idx, (input, target) in enumerate(loader):
            for g in optimizer.param_groups:
                g["lr"] = args.lr * g["lr_scale"] * 0.5 * (1 + math.cos(math.pi * num_updates / updates))
            input = input.to(device, non_blocking=True).float().sub_(mean).div_(std)
            target = target.to(device, non_blocking=True)
            input, target = mixer(input, target)
            if args.channels_last:
                input = input.contiguous(memory_format=torch.channels_last)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
                output = model(input)
                loss = torch.sum(-target * F.log_softmax(output, dim=-1), dim=-1).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            model_ema.update(model)
            if device.type == "cuda":
                torch.cuda.synchronize()
            num_updates += 1
            losses.update(loss.item(), input.size(0))
            _logger.info("Train: %d [%d/%d] Loss: %.4f (%.4f)", epoch, batch_idx, len(loader), loss.item(), losses.avg)
        os.makedirs(args.output, exist_ok=True)
        state = {"epoch": epoch, "state_dict": model.state_dict(), "state_dict_ema": model_ema.module.state_dict()}
        torch.save(state, os.path.join(args.output, f"checkpoint-{epoch}.pth.tar"))


if __name__ == "__main__":
    main()
