"""Trains an anchor-free detector (a small backbone, a pyramid and a shared head) on pictures of boxes."""

import math
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

random.seed(3)
torch.manual_seed(3)
DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
NUM_CLASSES, SIZE = 5, 128
STRIDES = (8, 16, 32)
RANGES = ((0, 32), (32, 64), (64, 10_000))


def sample(_):
    image = torch.rand(3, SIZE, SIZE) * 0.2
    boxes, labels = [], []
    for _ in range(random.randint(1, 6)):
        w, h = random.randint(12, 80), random.randint(12, 80)
        x, y = random.randint(0, SIZE - w), random.randint(0, SIZE - h)
        label = random.randrange(NUM_CLASSES)
        image[label % 3, y : y + h, x : x + w] += 0.2 * (label + 1)
        boxes.append([x, y, x + w, y + h])
        labels.append(label)
    return image, {"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.tensor(labels)}


def collate(batch):
    images, targets = zip(*batch, strict=True)
    return torch.stack(images), list(targets)


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.GroupNorm(8, o), nn.SiLU())


class Detector(nn.Module):
    def __init__(self, width=32, channels=64):
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 2), conv(width, width * 2, 2))
        self.c3 = conv(width * 2, width * 2, 2)
        self.c4 = conv(width * 2, width * 4, 2)
        self.c5 = conv(width * 4, width * 8, 2)
        self.lateral = nn.ModuleList(nn.Conv2d(c, channels, 1) for c in (width * 2, width * 4, width * 8))
        self.tower = nn.Sequential(conv(channels, channels), conv(channels, channels))
        self.cls = nn.Conv2d(channels, NUM_CLASSES, 3, padding=1)
        self.box = nn.Conv2d(channels, 4, 3, padding=1)
        self.ctr = nn.Conv2d(channels, 1, 3, padding=1)
        self.scales = nn.Parameter(torch.ones(len(STRIDES)))
        nn.init.constant_(self.cls.bias, -math.log((1 - 0.01) / 0.01))

    def forward(self, x):
        c3 = self.c3(self.stem(x))
        c4 = self.c4(c3)
        c5 = self.c5(c4)
        feats = [lat(c) for lat, c in zip(self.lateral, (c3, c4, c5), strict=True)]
        for i in (1, 0):
            feats[i] = feats[i] + F.interpolate(feats[i + 1], scale_factor=2, mode="nearest")
        cls, box, ctr, points = [], [], [], []
        for i, (f, stride) in enumerate(zip(feats, STRIDES, strict=True)):
            t = self.tower(f)
            h, w = t.shape[-2:]
            cls.append(self.cls(t).flatten(2).transpose(1, 2))
            box.append((self.box(t) * self.scales[i]).exp().flatten(2).transpose(1, 2) * stride)
            ctr.append(self.ctr(t).flatten(2).transpose(1, 2).squeeze(-1))
            ys, xs = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
            points.append(torch.stack([xs, ys], -1).reshape(-1, 2) * stride + stride // 2)
        return torch.cat(cls, 1), torch.cat(box, 1), torch.cat(ctr, 1), points


def assign(points, boxes, labels):
    """Class and distances of every point; a point outside of all boxes is background."""
    all_points = torch.cat(points).float()
    low = torch.cat([torch.full((len(p),), float(lo)) for p, (lo, _) in zip(points, RANGES, strict=True)]).to(boxes)
    high = torch.cat([torch.full((len(p),), float(hi)) for p, (_, hi) in zip(points, RANGES, strict=True)]).to(boxes)
    x, y = all_points[:, None, 0], all_points[:, None, 1]
    ltrb = torch.stack([x - boxes[:, 0], y - boxes[:, 1], boxes[:, 2] - x, boxes[:, 3] - y], dim=-1)
    largest = ltrb.amax(-1)
    ok = (ltrb.amin(-1) > 0) & (largest >= low[:, None]) & (largest < high[:, None])
    area = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))[None].expand(len(all_points), -1).clone()
    area[~ok] = 1e8
    best_area, best = area.min(dim=1)
    classes = labels[best].clone()
    classes[best_area == 1e8] = NUM_CLASSES
    return classes, ltrb[torch.arange(len(best), device=best.device), best]


def focal(logits, target, alpha=0.25, gamma=2.0):
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    pt = p * target + (1 - p) * (1 - target)
    weight = alpha * target + (1 - alpha) * (1 - target)
    return (weight * (1 - pt) ** gamma * ce).sum()


def iou_loss(pred, target):
    inter = (torch.min(pred[:, 0], target[:, 0]) + torch.min(pred[:, 2], target[:, 2])) * (
        torch.min(pred[:, 1], target[:, 1]) + torch.min(pred[:, 3], target[:, 3])
    )
    a = (pred[:, 0] + pred[:, 2]) * (pred[:, 1] + pred[:, 3])
    b = (target[:, 0] + target[:, 2]) * (target[:, 1] + target[:, 3])
    return -torch.log((inter + 1) / (a + b - inter + 1))


model = Detector().to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=1e-4)
loader = DataLoader(list(map(sample, range(24))), batch_size=4, shuffle=True, collate_fn=collate)
model.train()
for i, (images, targets) in enumerate(loader):
    images = images.to(DEVICE)
    targets = [{k: v.to(DEVICE) for k, v in t.items()} for t in targets]
    cls, box, ctr, points = model(images)
    assigned = [assign(points, t["boxes"], t["labels"]) for t in targets]
    classes = torch.stack([a[0] for a in assigned])
    distances = torch.stack([a[1] for a in assigned])
    positive = classes < NUM_CLASSES
    num_pos = max(int(positive.sum()), 1)
    onehot = F.one_hot(classes, NUM_CLASSES + 1)[..., :NUM_CLASSES].to(cls)
    loss_cls = focal(cls, onehot) / num_pos
    if positive.any():
        d = distances[positive]
        lr, tb = d[:, [0, 2]], d[:, [1, 3]]
        centre = (lr.amin(1) / lr.amax(1) * tb.amin(1) / tb.amax(1)).clamp(min=1e-6).sqrt()
        loss_box = (iou_loss(box[positive], d) * centre).sum() / centre.sum()
        loss_ctr = F.binary_cross_entropy_with_logits(ctr[positive], centre)
    else:
        loss_box = loss_ctr = cls.sum() * 0
    losses = {"cls": loss_cls, "box": loss_box, "ctr": loss_ctr}
    total = sum(losses.values())
    if not math.isfinite(total.item()):
        raise SystemExit(f"loss is {total.item()}, stopping")
    optimizer.zero_grad()
    total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    print(i, num_pos, {k: round(v.item(), 3) for k, v in losses.items()})
