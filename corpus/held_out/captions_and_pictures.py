"""Pictures and their captions drawn together: two towers, a contrastive loss both ways, a learned temperature."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PARTS, CHOICES, EMBED = 5, 8, 24
BATCH, EPOCHS = 32, 6


def make_data(count, seed):
    """A scene is five things, each of eight sorts; no two scenes are alike, and each has its own caption."""
    rng = np.random.default_rng(seed)
    numbers = rng.choice(CHOICES**PARTS, size=count, replace=False)
    scenes = np.stack([numbers // CHOICES**part % CHOICES for part in range(PARTS)], axis=1)
    looks = rng.standard_normal((PARTS, CHOICES, 40))
    pictures = sum(looks[part, scenes[:, part]] for part in range(PARTS)) + 0.3 * rng.standard_normal((count, 40))
    captions = scenes + CHOICES * np.arange(PARTS)
    return torch.tensor(pictures, dtype=torch.float32), torch.tensor(captions)


class PictureTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, EMBED))

    def forward(self, pictures):
        return F.normalize(self.net(pictures), dim=-1)


class CaptionTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(PARTS * CHOICES, 48)
        self.net = nn.Sequential(nn.GELU(), nn.LayerNorm(48), nn.Linear(48, EMBED))

    def forward(self, captions):
        return F.normalize(self.net(self.words(captions).sum(dim=1)), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture, self.caption = PictureTower(), CaptionTower()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, pictures, captions):
        return self.logit_scale.exp() * self.picture(pictures) @ self.caption(captions).T


def contrastive_loss(logits):
    """Each picture chooses its caption among those of the batch, and each caption its picture."""
    labels = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


@torch.no_grad()
def recall(model, pictures, captions):
    model.eval()
    found = model(pictures, captions).argmax(dim=1)
    return (found == torch.arange(len(found))).float().mean().item()


torch.manual_seed(8)
pictures, captions = make_data(480, seed=8)
valid_pictures, valid_captions = pictures[:64], captions[:64]
train_pictures, train_captions = pictures[64:], captions[64:]
model = TwoTowers()
decayed = [p for p in model.parameters() if p.ndim > 1]
others = [p for p in model.parameters() if p.ndim <= 1]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=5e-3)
steps = EPOCHS * (len(train_pictures) // BATCH)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min((step + 1) / 5, 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / steps)))
)

for epoch in range(EPOCHS):
    model.train()
    losses = []
    order = torch.randperm(len(train_pictures))
    for rows in order.split(BATCH):
        if len(rows) < BATCH:
            continue  # fewer others to choose from would be an easier task
        logits = model(train_pictures[rows], train_captions[rows])
        loss = contrastive_loss(logits)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        losses.append(loss.item())
    hit = recall(model, valid_pictures, valid_captions)
    print(f"epoch {epoch + 1} loss {np.mean(losses):.3f} recall@1 {hit:.3f} scale {model.logit_scale.exp().item():.1f}")
torch.save(model.state_dict(), "towers.pt")
