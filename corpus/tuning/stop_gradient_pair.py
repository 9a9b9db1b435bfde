"""Two views agree through a predictor: the other side is detached, as in SimSiam, so nothing collapses."""

import torch
from torch import nn
from torch.nn.functional import cosine_similarity


class Siamese(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.BatchNorm1d(width)
        )
        self.predictor = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, width))

    def forward(self, first, second):
        a, b = self.encoder(first), self.encoder(second)
        return self.predictor(a), self.predictor(b), a.detach(), b.detach()


def blobs(count, seed):
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    return centre[torch.randint(6, (count,), generator=g)] + 0.2 * torch.randn(count, 20, generator=g)


torch.manual_seed(316)
data = blobs(400, seed=1)
model = Siamese()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(40):
    x = data[torch.randint(len(data), (48,))]
    p, q, a, b = model(x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x))
    loss = -0.5 * (cosine_similarity(p, b).mean() + cosine_similarity(q, a).mean())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    spread = nn.functional.normalize(model.encoder(blobs(60, seed=2)), dim=1).std(dim=0).mean().item()
print(f"loss {loss.item():.3f} spread {spread:.3f}")
