"""SimSiam on small pictures of shells: two views, a predictor on one side and a stopped gradient on the other."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(40)
KINDS, SIDE = 5, 12


def shells(count, seed):
    """Spirals with a number of turns that depends on the kind, anywhere in brightness and tilt."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=g)
    grid = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    angle, away = torch.atan2(y, x), torch.hypot(y, x)
    tilt = 6.283 * torch.rand(count, 1, 1, generator=g)
    spiral = torch.cos((kind[:, None, None] + 1) * angle + 4 * away + tilt)
    return (spiral + 0.5 * torch.randn(count, SIDE, SIDE, generator=g)).unsqueeze(1), kind


def view(pictures):
    """Shifted by up to one pixel, mirrored or not, brighter or darker, with noise."""
    moved = torch.roll(pictures, shifts=tuple(torch.randint(-1, 2, (2,)).tolist()), dims=(2, 3))
    mirrored = torch.where(torch.rand(len(moved), 1, 1, 1) < 0.5, moved.flip(-1), moved)
    bright = 0.8 + 0.4 * torch.rand(len(moved), 1, 1, 1)
    return bright * mirrored + 0.1 * torch.randn_like(mirrored)


encoder = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(288, 48),
    nn.BatchNorm1d(48, affine=False),
)
predictor = nn.Sequential(nn.Linear(48, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 48))
EPOCHS, BATCH = 8, 64
train_pictures, train_kinds = shells(512, seed=1)
test_pictures, test_kinds = shells(128, seed=2)
optimizer = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.1, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * len(train_pictures) // BATCH)


@torch.no_grad()
def nearest_neighbours(k=9):
    """Accuracy of a vote of the nearest training pictures: labels are used here and nowhere else."""
    encoder.eval()
    bank = F.normalize(encoder(train_pictures), dim=1)
    near = (F.normalize(encoder(test_pictures), dim=1) @ bank.T).topk(k, dim=1).indices
    guess = train_kinds[near].mode(dim=1).values
    return (guess == test_kinds).float().mean().item(), bank.std(dim=0).mean().item()


print("untrained: %.3f" % nearest_neighbours()[0])
for epoch in range(EPOCHS):
    encoder.train()
    predictor.train()
    total = 0.0
    for rows in torch.randperm(len(train_pictures)).split(BATCH):
        one, two = view(train_pictures[rows]), view(train_pictures[rows])
        z1, z2 = encoder(one), encoder(two)
        p1, p2 = predictor(z1), predictor(z2)
        t1, t2 = z1.detach(), z2.detach()
        loss = -0.5 * (F.cosine_similarity(p1, t2).mean() + F.cosine_similarity(p2, t1).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(rows)
    score, spread = nearest_neighbours()
    print(f"epoch {epoch} loss {total / len(train_pictures):.3f} neighbours {score:.3f} spread {spread:.3f}")
