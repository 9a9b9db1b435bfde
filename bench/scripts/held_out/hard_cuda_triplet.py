"""Trains an embedding of pictures by hard triplets, written for a GPU: every tensor is moved with .cuda().

Needs numpy.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

np.random.seed(1)
torch.manual_seed(1)
P, K = 8, 6  # identities and pictures of each in a batch


class EmbeddingNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 48, 5, 2, 2),
            nn.PReLU(),
            nn.Conv2d(48, 96, 3, 2, 1),
            nn.PReLU(),
            nn.Conv2d(96, 128, 3, 2, 1),
            nn.PReLU(),
            nn.AdaptiveMaxPool2d(2),
        )
        self.fc = nn.Linear(512, dim)

    def forward(self, x):
        return F.normalize(self.fc(self.features(x).flatten(1)))


def batch():
    centres = np.random.randn(P, 3, 8, 8).astype("float32")
    pictures = np.repeat(centres, K, axis=0).repeat(8, axis=2).repeat(8, axis=3)
    pictures += 0.7 * np.random.randn(*pictures.shape).astype("float32")
    return torch.from_numpy(pictures).cuda(), torch.arange(P).repeat_interleave(K).cuda()


def batch_hard(embeddings, labels, margin=0.3):
    distance = torch.cdist(embeddings, embeddings)
    same = labels[:, None] == labels[None, :]
    positive = distance.masked_fill(~same, 0).max(dim=1).values
    negative = distance.masked_fill(same, 1e6).min(dim=1).values
    losses = F.relu(positive - negative + margin)
    active = losses > 0
    return losses[active].mean() if active.any() else losses.mean(), active.float().mean()


net = nn.DataParallel(EmbeddingNet()).cuda() if torch.cuda.device_count() > 1 else EmbeddingNet().cuda()
classifier = nn.Linear(64, P).cuda()
optimizer = torch.optim.Adam([{"params": net.parameters()}, {"params": classifier.parameters(), "lr": 1e-2}], lr=3e-4)
scaler = torch.cuda.amp.GradScaler()
for it in range(8):
    x, y = batch()
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():
        e = net(x)
        triplet, active = batch_hard(e.float(), y)
        loss = triplet + 0.5 * F.cross_entropy(classifier(e) * 10, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"iter {it} loss {loss.item():.4f} active {active.item():.2f} scale {scaler.get_scale():.0f}")
torch.save(net.state_dict(), "triplet.pth")
