"""An endless stream, each worker with its own part of it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.manual_seed(43)


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for number in range(worker, 240, workers):
            generator = torch.Generator().manual_seed(number)
            x = torch.randn(10, generator=generator)
            yield x, x[:3].argmax()


model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for x, y in DataLoader(Stream(), batch_size=16, num_workers=2):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
