"""Tags of songs with sparse gradients: only the rows of the table that were looked up change, by SparseAdam."""

import torch
import torch.nn as nn

TAGS, GENRES = 500, 4


def songs(count, seed):
    g = torch.Generator().manual_seed(seed)
    genre = torch.randint(GENRES, (count,), generator=g)
    own = torch.randint(20, (count, 5), generator=g) * GENRES + genre[:, None]
    other = torch.randint(TAGS, (count, 5), generator=g)
    return torch.where(torch.rand(count, 5, generator=g) < 0.6, own, other), genre


torch.manual_seed(307)
table = nn.EmbeddingBag(TAGS, 16, mode="mean", sparse=True)
head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, GENRES))
sparse = torch.optim.SparseAdam(table.parameters(), lr=2e-2)
dense = torch.optim.Adam(head.parameters(), lr=5e-3)
tags, genre = songs(600, seed=1)
for step in range(40):
    rows = torch.randint(len(tags), (16,))
    loss = nn.functional.cross_entropy(head(table(tags[rows])), genre[rows])
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
tags, genre = songs(100, seed=2)
with torch.no_grad():
    print("right", (head(table(tags)).argmax(dim=1) == genre).float().mean().item())
