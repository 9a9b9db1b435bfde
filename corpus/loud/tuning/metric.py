import torch
import torch.nn.functional as F
from torch import nn, optim

torch.manual_seed(1)


class Embedder(nn.Module):
    def __init__(self, inputs=10, size=8):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, 20), nn.Linear(20, 20), nn.Linear(20, size)])
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number < len(self.layers) - 1:
                x = F.gelu(x)
        return F.normalize(x * self.scale, dim=-1)


class Bank:
    """Embeddings of the last batches."""

    def __init__(self, size, width):
        self.rows = torch.zeros(size, width)
        self.at = 0

    def add(self, rows):
        self.rows[self.at : self.at + len(rows)] = rows.detach()
        self.at = (self.at + len(rows)) % len(self.rows)


centres = torch.randn(4, 10)
net = Embedder()
opt = optim.AdamW(net.parameters(), lr=1e-3)
bank = Bank(24, 8)
temperature = 0.1


def draw(count):
    kinds = torch.randint(0, 4, (count,))
    return centres[kinds] + 0.1 * torch.randn(count, 10), kinds


for iteration in range(5):
    first, kinds = draw(8)
    second = first + 0.05 * torch.randn_like(first)
    a, b = net(first), net(second)
    similarity = a @ b.T / temperature
    partners = torch.arange(len(a))
    contrast = F.cross_entropy(similarity, partners)
    against_bank = a @ bank.rows.T
    spread = torch.logsumexp(against_bank, dim=1).mean()
    total = contrast + 0.01 * spread
    opt.zero_grad()
    total.backward()
    opt.step()
    bank.add(b)
