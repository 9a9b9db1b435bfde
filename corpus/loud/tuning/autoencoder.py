import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
data = torch.rand(64, 20)


class AutoEncoder(nn.Module):
    def __init__(self, features=20, code=5):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 2 * code))
        self.decode = nn.Sequential(nn.Linear(code, 16), nn.ReLU(), nn.Linear(16, features))

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, dim=1)
        noise = torch.randn_like(mean)
        code = mean + noise * torch.exp(0.5 * log_variance)
        return self.decode(code), mean, log_variance


model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
kept = torch.zeros(20, requires_grad=True)
for start in range(0, 64, 16):
    x = data[start : start + 16]
    restored, mean, log_variance = model(x)
    closeness = F.mse_loss(restored, x)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
    loss = closeness + 0.01 * divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
