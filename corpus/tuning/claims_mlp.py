"""Which insurance claims are fraud? One in nine is. A plain table, an MLP, numpy indices, AUC and F1 by hand."""

import numpy as np
import torch
import torch.nn as nn

EPOCHS = 6
BATCH_SIZE = 50
LR = 3e-3


def make_claims(n, rng):
    amount = rng.lognormal(7, 1, n)
    age = rng.uniform(18, 90, n)
    days_to_report = rng.exponential(9, n)
    earlier_claims = rng.poisson(0.7, n).astype(float)
    policy_years = rng.uniform(0, 30, n)
    night = rng.integers(0, 2, n).astype(float)
    score = 0.9 * (np.log(amount) - 7) + 0.12 * days_to_report + 0.9 * earlier_claims
    score += np.where((night == 1) & (policy_years < 8), 2.0, 0.0) - 0.05 * policy_years
    fraud = (score + rng.logistic(0, 0.5, n) > 4.1).astype(np.float32)
    table = np.column_stack([amount, age, days_to_report, earlier_claims, policy_years, night])
    return table, fraud


def prepare(table, statistics=None):
    """Amounts on a logarithmic scale, then every column standardised with the numbers of the training table."""
    table = table.copy()
    table[:, 0] = np.log(table[:, 0])
    if statistics is None:
        statistics = table.mean(axis=0), table.std(axis=0)
    mean, std = statistics
    return torch.tensor((table - mean) / std, dtype=torch.float32), statistics


class ClaimsNet(nn.Module):
    def __init__(self, inputs=6, hidden=48):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.bn2 = nn.BatchNorm1d(hidden)
        self.dropout = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        x = self.dropout(torch.relu(self.bn1(self.fc1(x))))
        x = self.dropout(torch.relu(self.bn2(self.fc2(x))))
        return self.out(x)


def auc(scores, truth):
    """The share of pairs of a fraud and an honest claim that are in the right order."""
    fraud, honest = scores[truth == 1], scores[truth == 0]
    return (fraud[:, None] > honest[None, :]).float().mean().item()


def f1(predicted, truth):
    hits = (predicted & (truth == 1)).sum().item()
    return 2 * hits / max(1, predicted.sum().item() + (truth == 1).sum().item())


def validate(net, x, y, criterion):
    net.eval()
    logits, loss_sum = [], 0.0
    with torch.no_grad():
        for start in range(0, len(x), 64):
            part, truth = x[start : start + 64], y[start : start + 64]
            out = net(part).squeeze(1)
            loss_sum += criterion(out, truth).item() * len(part)
            logits.append(out)
    logits = torch.cat(logits)
    probability = torch.sigmoid(logits)
    return loss_sum / len(x), auc(logits, y), f1(probability > 0.5, y)


torch.manual_seed(77)
rng = np.random.default_rng(77)
table, fraud = make_claims(1150, rng)
order = rng.permutation(len(table))
train_rows, valid_rows = order[:900], order[900:]
x_train, statistics = prepare(table[train_rows])
x_valid, _ = prepare(table[valid_rows], statistics)
y_train, y_valid = torch.from_numpy(fraud[train_rows]), torch.from_numpy(fraud[valid_rows])

model = ClaimsNet()
pos_weight = (y_train == 0).sum() / (y_train == 1).sum()
criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)
optimizer = torch.optim.RMSprop(model.parameters(), lr=LR, alpha=0.95, weight_decay=1e-4)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=1)

for epoch in range(1, EPOCHS + 1):
    model.train()
    shuffled = rng.permutation(len(x_train))
    epoch_loss = 0.0
    for i in range(0, len(shuffled), BATCH_SIZE):
        chosen = shuffled[i : i + BATCH_SIZE]
        inputs, targets = x_train[chosen], y_train[chosen]
        optimizer.zero_grad()
        logits = model(inputs).squeeze(1)
        loss = criterion(logits, targets)
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item() * len(chosen)
    valid_loss, area, f = validate(model, x_valid, y_valid, criterion)
    plateau.step(valid_loss)
    print(f"{epoch} train {epoch_loss / len(x_train):.4f} valid {valid_loss:.4f} auc {area:.3f} f1 {f:.3f}")

np.savez("claims_scaling.npz", mean=statistics[0], std=statistics[1])
torch.save(model.state_dict(), "claims.pt")
