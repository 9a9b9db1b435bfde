"""Neural Cox model on simulated patients with right censoring; scored with Harrell's C."""
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(29)
torch.manual_seed(29)

N_TRAIN, N_VAL, N_TEST = 360, 200, 500
N_MARKERS = 30  # only the first five carry anything
EPOCHS = 60
LR = 4e-3
L1 = 4e-3


# ---------------------------------------------------------------- data
def simulate(n):
    """Returns marker table, follow-up time in months, event flag (1 = died, 0 = censored)."""
    x = rng.normal(size=(n, N_MARKERS))
    log_hazard = 1.2 * x[:, 0] - 0.9 * x[:, 1] + 0.7 * x[:, 2] * x[:, 3] + 0.6 * np.maximum(x[:, 4], 0)
    death = 20 * (rng.exponential(size=n) / np.exp(log_hazard)) ** (1 / 1.4)
    # people with a low first marker tend to leave the study early
    censoring = 22 * rng.exponential(size=n) * np.exp(1.1 * x[:, 0])
    time = np.minimum(death, censoring)
    event = (death <= censoring).astype(np.int64)
    # clinic visits during follow-up are recorded too, as the last column
    visits = rng.poisson(time / 2)
    table = np.column_stack([x, np.log1p(visits)])
    return table, time, event


def prepare(n):
    table, time, event = simulate(n)
    x = table[:, :N_MARKERS]  # visits are known only afterwards and stay out
    return (torch.tensor(x, dtype=torch.float32),
            torch.tensor(time, dtype=torch.float32),
            torch.tensor(event))


train, val, test = prepare(N_TRAIN), prepare(N_VAL), prepare(N_TEST)


# ---------------------------------------------------------------- model
class RiskNet(nn.Module):
    def __init__(self, n_in, width=32):
        super().__init__()
        self.first = nn.Linear(n_in, width)
        self.rest = nn.Sequential(nn.SiLU(), nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 1, bias=False))

    def forward(self, x):
        return self.rest(self.first(x)).squeeze(-1)


def cox_loss(risk, time, event):
    """Negative partial log likelihood per death (Breslow, ties are practically absent)."""
    order = torch.argsort(time, descending=True)
    risk, event = risk[order], event[order].bool()
    log_at_risk = torch.logcumsumexp(risk, dim=0)  # everybody whose time is at least as long
    return -(risk - log_at_risk)[event].mean()


def sparsity(model):
    return model.first.weight.abs().sum(dim=1).mean()


@torch.no_grad()
def concordance(model, data):
    """Share of comparable pairs in which the one who died first has the higher risk."""
    x, time, event = data
    risk = model(x)
    first_died = (time[:, None] < time[None, :]) & (event[:, None] == 1)
    right = (risk[:, None] > risk[None, :]).float() + 0.5 * (risk[:, None] == risk[None, :]).float()
    return (right * first_died).sum().item() / first_died.sum().item()


# ---------------------------------------------------------------- training
model = RiskNet(train[0].shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.3, patience=4)

print(f"deaths: {train[2].float().mean():.2f} of the training rows")
print(f"before: test concordance {concordance(model, test):.3f}")

BATCH = 120
best = 0.0
for epoch in range(EPOCHS):
    x, time, event = train
    for rows in torch.randperm(N_TRAIN).split(BATCH):
        fit = cox_loss(model(x[rows]), time[rows], event[rows])
        loss = fit + L1 * sparsity(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    score = concordance(model, val)
    scheduler.step(score)
    if score > best:
        best = score
        torch.save(model.state_dict(), "deep_survival_best.pt")
    if epoch % 10 == 0 or epoch == EPOCHS - 1:
        print(f"epoch {epoch:2d}  loss {loss.item():.4f}  validation concordance {score:.3f}")

model.load_state_dict(torch.load("deep_survival_best.pt"))
print(f"after: validation concordance {best:.3f}, test concordance {concordance(model, test):.3f}")
