"""Trains a gated MLP-mixer with Muon for matrices and a fused AdamW for the rest, each with its own schedule."""

import torch
from torch import nn

torch.manual_seed(99)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Spatial(nn.Module):
    def __init__(self, dim, tokens):
        super().__init__()
        self.norm = nn.LayerNorm(dim // 2)
        self.weight = nn.Parameter(torch.empty(tokens, tokens).normal_(std=1e-3))
        self.bias = nn.Parameter(torch.ones(tokens))

    def forward(self, x):
        u, v = x.chunk(2, dim=-1)
        v = torch.einsum("bnd,mn->bmd", self.norm(v), self.weight) + self.bias[:, None]
        return u * v


class Block(nn.Module):
    def __init__(self, dim, tokens):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.gate, self.down = nn.Linear(dim, 4 * dim), Spatial(4 * dim, tokens), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(self.gate(nn.functional.gelu(self.up(self.norm(x)))))


class GMLP(nn.Module):
    def __init__(self, vocab=2000, dim=128, tokens=64, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*[Block(dim, tokens) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.blocks(self.embed(ids)))


model = GMLP().to(device)
matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
chosen = {id(p) for p in matrices}
others = [p for p in model.parameters() if id(p) not in chosen]
optimizers = [
    torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.01),
    torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), fused=True),
]
schedules = [
    torch.optim.lr_scheduler.LinearLR(optimizers[0], 0.2, 1.0, 3),
    torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizers[1], T_0=4),
]
initial = {n: p.detach().clone() for n, p in model.named_parameters()}
for step in range(7):
    ids = torch.randint(0, 2000, (16, 64), device=device)
    corrupt = torch.where(torch.rand(ids.shape, device=device) < 0.15, 0, ids)
    loss = nn.functional.cross_entropy(model(corrupt).transpose(1, 2), ids)
    loss.backward()
    for optimizer, schedule in zip(optimizers, schedules, strict=True):
        optimizer.step()
        schedule.step()
    model.zero_grad(set_to_none=True)
    rates = [s.get_last_lr()[0] for s in schedules]
    print(f"{step} loss {loss.item():.4f} rates {rates[0]:.4f} {rates[1]:.5f}")
moved = {n: (p - initial[n]).norm().item() / (initial[n].norm().item() + 1e-9) for n, p in model.named_parameters()}
print("moved most:", sorted(moved, key=moved.get)[-3:])
