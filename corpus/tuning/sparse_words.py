"""Skip-gram with negative sampling: sparse gradients, SparseAdam, embeddings that few batches touch."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(16)
WORDS = 200
inner, outer = nn.Embedding(WORDS, 12, sparse=True), nn.Embedding(WORDS, 12, sparse=True)
nn.init.zeros_(outer.weight)
optimizer = torch.optim.SparseAdam([*inner.parameters(), *outer.parameters()], lr=1e-2)
for _ in range(15):
    centre = torch.randint(0, WORDS, (32,))
    context, negative = (centre + 1) % WORDS, torch.randint(0, WORDS, (32, 5))
    v = inner(centre)
    good = F.logsigmoid((v * outer(context)).sum(1))
    bad = F.logsigmoid(-(outer(negative) @ v.unsqueeze(2)).squeeze(2)).sum(1)
    loss = -(good + bad).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
