"""Species of a flower from four lengths, cell by cell as in a notebook: numpy arrays, an order shuffled by hand."""

import numpy as np
import torch
import torch.nn as nn

# %% data
rng = np.random.default_rng(0)
torch.manual_seed(0)
means = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
species = np.repeat(np.arange(3), 80)
lengths = means[species] + 0.35 * rng.standard_normal((240, 4))

# %% split
order = rng.permutation(240)
lengths, species = lengths[order], species[order]
X_train, y_train = lengths[:192], species[:192]
X_test, y_test = lengths[192:], species[192:]
mu, sd = X_train.mean(0), X_train.std(0)
X_train, X_test = (X_train - mu) / sd, (X_test - mu) / sd
X_train, X_test = torch.tensor(X_train, dtype=torch.float32), torch.tensor(X_test, dtype=torch.float32)
y_train, y_test = torch.tensor(y_train), torch.tensor(y_test)

# %% model
net = nn.Sequential(
    nn.Linear(4, 24),
    nn.ReLU(),
    nn.Linear(24, 24),
    nn.ReLU(),
    nn.Dropout(0.1),
    nn.Linear(24, 3),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
batch_size = 16

# %% training
history = []
for epoch in range(5):
    net.train()
    perm = torch.randperm(len(X_train))
    total = 0.0
    for start in range(0, len(X_train), batch_size):
        rows = perm[start : start + batch_size]
        xb = X_train[rows]
        yb = y_train[rows]
        optimizer.zero_grad()
        out = net(xb)
        loss = criterion(out, yb)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    history.append(total / len(X_train))
    net.eval()
    with torch.no_grad():
        guess = net(X_test).argmax(dim=1)
        accuracy = (guess == y_test).float().mean().item()
    print(f"epoch {epoch + 1} loss {history[-1]:.4f} accuracy {accuracy:.3f}")
