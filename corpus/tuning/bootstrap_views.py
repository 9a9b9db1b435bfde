"""Heartbeats without labels: two views of a beat, a predictor and a stopped gradient; then neighbours are counted."""

import math

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, KINDS = 48, 4


def beats(count, generator):
    """Beats of four kinds: where the peaks stand, how wide and how high they are."""
    kind = torch.randint(KINDS, (count,), generator=generator)
    at = torch.arange(LENGTH)
    first = torch.tensor([10.0, 16.0, 10.0, 16.0])[kind] + torch.randn(count, generator=generator)
    second = torch.tensor([30.0, 30.0, 24.0, 36.0])[kind] + torch.randn(count, generator=generator)
    width = torch.tensor([2.0, 3.0, 4.0, 2.0])[kind]
    waves = [torch.exp(-(((at - place[:, None]) / width[:, None]) ** 2)) for place in (first, second)]
    return waves[0] - 0.7 * waves[1] + 0.05 * torch.randn(count, LENGTH, generator=generator), kind


def view(x):
    """A beat seen through another electrode: shifted a little, scaled, noisy, a stretch of it missing."""
    shift = int(torch.randint(-2, 3, ()))
    x = x.roll(shift, dims=1) * (0.7 + 0.6 * torch.rand(len(x), 1)) + 0.1 * torch.randn_like(x)
    start = torch.randint(LENGTH - 6, (len(x), 1))
    at = torch.arange(LENGTH)
    return x.masked_fill((at >= start) & (at < start + 6), 0.0)


class Encoder(nn.Module):
    def __init__(self, width=64, dim=32):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(LENGTH, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, dim),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
        )
        self.projector = nn.Sequential(
            nn.Linear(dim, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dim), nn.BatchNorm1d(dim)
        )

    def forward(self, x):
        return self.projector(self.backbone(x))


def apart(guess, truth):
    return -F.cosine_similarity(guess, truth.detach(), dim=1).mean()


@torch.no_grad()
def neighbours(encoder, known, kinds, asked, answers, k=9):
    """Share of held beats whose nearest beats are of their kind."""
    encoder.eval()
    bank = F.normalize(encoder.backbone(known), dim=1)
    near = (F.normalize(encoder.backbone(asked), dim=1) @ bank.T).topk(k, dim=1).indices
    votes = F.one_hot(kinds[near], KINDS).sum(dim=1)
    return (votes.argmax(dim=1) == answers).float().mean().item()


torch.manual_seed(37)
generator = torch.Generator().manual_seed(38)
train_x, train_kind = beats(640, generator)
held_x, held_kind = beats(160, generator)

encoder = Encoder()
predictor = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))
parameters = [*encoder.parameters(), *predictor.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
EPOCHS, BATCH = 6, 64
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * math.ceil(len(train_x) / BATCH))
for epoch in range(EPOCHS):
    encoder.train()
    predictor.train()
    total = 0.0
    for rows in torch.randperm(len(train_x)).split(BATCH):
        one, two = view(train_x[rows]), view(train_x[rows])
        z1, z2 = encoder(one), encoder(two)
        loss = 0.5 * (apart(predictor(z1), z2) + apart(predictor(z2), z1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(rows)
    spread = F.normalize(z1.detach(), dim=1).std(dim=0).mean().item()
    near = neighbours(encoder, train_x, train_kind, held_x, held_kind)
    print(f"epoch {epoch} loss {total / len(train_x):.3f} spread {spread:.3f} neighbours of a kind {near:.1%}")
torch.save({"encoder": encoder.state_dict(), "predictor": predictor.state_dict()}, "beats.pt")
