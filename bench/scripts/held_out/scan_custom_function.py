"""Trains a gated linear recurrence with its own autograd.Function on a task of selective copying."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class LinearScan(Function):
    """h[t] = a[t] * h[t-1] + b[t], along dimension 1."""

    @staticmethod
    def forward(ctx, a, b):
        h = torch.empty_like(b)
        state = torch.zeros_like(b[:, 0])
        for t in range(b.shape[1]):
            state = a[:, t] * state + b[:, t]
            h[:, t] = state
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        a, h = ctx.saved_tensors
        grad_a, grad_b = torch.zeros_like(a), torch.empty_like(h)
        carry = torch.zeros_like(h[:, 0])
        for t in range(h.shape[1] - 1, -1, -1):
            carry = carry + grad[:, t]
            grad_b[:, t] = carry
            if t > 0:
                grad_a[:, t] = carry * h[:, t - 1]
            carry = carry * a[:, t]
        return grad_a, grad_b


class Mixer(nn.Module):
    def __init__(self, dim, expand=2):
        super().__init__()
        inner = dim * expand
        self.norm = nn.RMSNorm(dim)
        self.inp = nn.Linear(dim, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.gates = nn.Linear(inner, 2 * inner)
        self.decay = nn.Parameter(torch.linspace(0.5, 4.0, inner))
        self.out = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        u, z = self.inp(self.norm(x)).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.size(1)].transpose(1, 2))
        i, r = torch.sigmoid(self.gates(u)).chunk(2, dim=-1)
        log_a = -8.0 * F.softplus(self.decay) * r
        a = torch.exp(log_a)
        h = LinearScan.apply(a, torch.sqrt(1 - torch.exp(2 * log_a) + 1e-6) * (i * u))
        return x + self.out(h * F.silu(z))


def selective_copy(batch, length, vocab, count):
    x = torch.zeros(batch, length, dtype=torch.long)
    y = torch.randint(1, vocab, (batch, count))
    for row in range(batch):
        at = torch.randperm(length - count)[:count].sort().values
        x[row, at] = y[row]
    return x, y


if __name__ == "__main__":
    torch.manual_seed(12)
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    vocab, length, count, dim = 32, 64, 8, 96
    model = nn.Sequential(nn.Embedding(vocab, dim), Mixer(dim), Mixer(dim), nn.RMSNorm(dim), nn.Linear(dim, vocab)).to(
        device
    )
    optimizer = torch.optim.Rprop(model.parameters(), lr=1e-4)
    for step in range(5):
        x, y = (t.to(device) for t in selective_copy(12, length, vocab, count))
        logits = model(x)[:, -count:]
        loss = F.cross_entropy(logits.transpose(1, 2), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{step}: {loss.item():.4f}, right {(logits.argmax(-1) == y).float().mean():.3f}")
