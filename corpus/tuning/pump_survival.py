"""Time to failure of pumps, some still running at the end: a Cox model with a neural risk score, full batches."""

import copy

import torch
import torch.nn as nn

torch.manual_seed(11)


def simulate(n, generator):
    hours = torch.rand(n, generator=generator) * 20
    heat = torch.randn(n, generator=generator) * 8 + 60
    material = torch.randint(0, 2, (n,), generator=generator).float()
    risk = 0.12 * (hours - 10) + 0.05 * (heat - 60) - 0.9 * material + 0.02 * (heat - 60) * material
    failure = torch.empty(n).exponential_(1.0, generator=generator) * torch.exp(-risk)
    end_of_study = torch.rand(n, generator=generator) * 3
    time = torch.minimum(failure, end_of_study)
    event = (failure <= end_of_study).float()
    return torch.stack([hours, heat, material], dim=1), time, event


def partial_likelihood(score, time, event):
    """Negative log partial likelihood (no ties), averaged over the failures."""
    order = torch.argsort(time, descending=True)
    score, event = score[order], event[order]
    at_risk = torch.logcumsumexp(score, dim=0)
    return -((score - at_risk) * event).sum() / event.sum()


def concordance(score, time, event):
    """Share of comparable pairs in which the one that failed first has the higher risk."""
    earlier = (time[:, None] < time[None, :]) & (event[:, None] == 1)
    higher = (score[:, None] > score[None, :]).float() + 0.5 * (score[:, None] == score[None, :]).float()
    return (higher[earlier].sum() / earlier.sum()).item()


g = torch.Generator().manual_seed(3)
x, time, event = simulate(700, g)
perm = torch.randperm(len(x), generator=g)
train_idx, val_idx, test_idx = perm[:450], perm[450:575], perm[575:]

mean, std = x[train_idx].mean(dim=0), x[train_idx].std(dim=0)
x = (x - mean) / std

net = nn.Sequential(
    nn.Linear(3, 32),
    nn.SELU(),
    nn.Dropout(0.1),
    nn.Linear(32, 32),
    nn.SELU(),
    nn.Linear(32, 1, bias=False),  # a constant would cancel in the likelihood
)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=1e-4)

best, best_state, bad = float("inf"), None, 0
patience = 25
for epoch in range(150):
    net.train()
    optimizer.zero_grad()
    loss = partial_likelihood(net(x[train_idx]).squeeze(1), time[train_idx], event[train_idx])
    loss.backward()
    optimizer.step()

    net.eval()
    with torch.no_grad():
        val = partial_likelihood(net(x[val_idx]).squeeze(1), time[val_idx], event[val_idx]).item()
    if val < best - 1e-4:
        best, best_state, bad = val, copy.deepcopy(net.state_dict()), 0
    else:
        bad += 1
        if bad >= patience:
            print(f"stopped after {epoch + 1} epochs")
            break
    if epoch % 10 == 0:
        print(f"epoch {epoch:3d} train {loss.item():.3f} val {val:.3f}")

net.load_state_dict(best_state)
net.eval()
with torch.no_grad():
    score = net(x[test_idx]).squeeze(1)
print(f"best val {best:.3f}, concordance on test {concordance(score, time[test_idx], event[test_idx]):.3f}")
