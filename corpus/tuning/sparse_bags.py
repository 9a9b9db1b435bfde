"""Clicks from bags of ids: a sparse table under one optimizer, dense layers under another, most rows never touched."""

import torch
from torch import nn

torch.manual_seed(13)
IDS = 5000


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(IDS, 8, sparse=True, mode="sum")
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids, offsets):
        return self.mlp(self.table(ids, offsets)).flatten()


def bags(n, g):
    sizes = torch.randint(1, 6, (n,), generator=g)
    ids = (torch.rand(int(sizes.sum()), generator=g) ** 4 * IDS).long()
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)[:-1]])
    liked = torch.zeros(n).index_add(0, torch.arange(n).repeat_interleave(sizes), (ids % 2).float() * 2 - 1)
    return ids, offsets, (liked > 0).float()


model = Clicks()
sparse = torch.optim.SparseAdam(list(model.table.parameters()), lr=5e-2)
dense = torch.optim.AdamW(model.mlp.parameters(), lr=1e-2)
criterion = nn.BCEWithLogitsLoss()
g = torch.Generator().manual_seed(14)
for step in range(50):
    ids, offsets, y = bags(64, g)
    loss = criterion(model(ids, offsets), y)
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
    if step % 10 == 9:
        print(f"{step + 1}: {loss.item():.3f}")
with torch.no_grad():
    ids, offsets, y = bags(300, torch.Generator().manual_seed(15))
    print("right", ((model(ids, offsets) > 0) == y.bool()).float().mean().item())
