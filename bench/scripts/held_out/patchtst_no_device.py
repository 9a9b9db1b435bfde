"""Trains a patch transformer that forecasts several series at once; names no device."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(10)
CHANNELS, CONTEXT, HORIZON, PATCH = 7, 256, 48, 16


class Windows(Dataset):
    def __init__(self, length=900):
        t = torch.arange(length, dtype=torch.float32)[:, None]
        periods = torch.tensor([12, 24, 24, 48, 96, 168, 30])[None]
        self.series = torch.sin(6.2832 * t / periods) + 0.2 * torch.randn(length, CHANNELS)

    def __len__(self):
        return len(self.series) - CONTEXT - HORIZON

    def __getitem__(self, i):
        return self.series[i : i + CONTEXT], self.series[i + CONTEXT : i + CONTEXT + HORIZON]


class PatchTST(nn.Module):
    def __init__(self, dim=96, depth=3, heads=6):
        super().__init__()
        self.count = CONTEXT // PATCH
        self.embed = nn.Linear(PATCH, dim)
        self.position = nn.Parameter(0.02 * torch.randn(self.count, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Sequential(nn.Flatten(1), nn.Dropout(0.1), nn.Linear(dim * self.count, HORIZON))

    def forward(self, x):
        b, _, c = x.shape
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        x = ((x - mean) / std).transpose(1, 2).reshape(b * c, self.count, PATCH)
        y = self.head(self.encoder(self.embed(x) + self.position)).view(b, c, HORIZON).transpose(1, 2)
        return y * std + mean


data = Windows()
train, test = torch.utils.data.random_split(data, [len(data) - 64, 64])
model = PatchTST()
averaged = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
swa = torch.optim.swa_utils.SWALR(optimizer, swa_lr=5e-4, anneal_epochs=2)
loss_fn = nn.HuberLoss()
for step, (x, y) in enumerate(DataLoader(train, batch_size=24, shuffle=True, drop_last=True)):
    loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step >= 4:
        averaged.update_parameters(model)
        swa.step()
    print(step, f"{loss.item():.4f}")
    if step == 9:
        break

averaged.eval()
with torch.no_grad():
    errors = [loss_fn(averaged(x), y).item() for x, y in DataLoader(test, batch_size=32)]
print("test", sum(errors) / len(errors))
