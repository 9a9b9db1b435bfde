"""Two networks in turn: one hides the ward of a record and keeps the diagnosis, the other looks for the ward."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

rng = np.random.default_rng(18)
torch.manual_seed(18)


def records(count):
    ward = rng.integers(0, 3, count)
    ill = rng.integers(0, 2, count)
    x = rng.normal(0, 1, (count, 12))
    x[:, :4] += 1.2 * (2 * ill[:, None] - 1)
    x[:, 4:7] += 2.0 * np.eye(3)[ward]
    x[:, 7:9] += 0.5 * (ill[:, None] + ward[:, None] - 1)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(ill), torch.tensor(ward)


class Hider(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8), nn.Tanh())
        self.diagnose = nn.Linear(8, 2)

    def forward(self, x):
        code = self.encode(x)
        return code, self.diagnose(code)


hider = Hider()
seeker = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
hider_optimizer = torch.optim.Adam(hider.parameters(), lr=2e-3)
seeker_optimizer = torch.optim.Adam(seeker.parameters(), lr=4e-3)
price_of_being_found = 0.5

x, ill, ward = records(1280)
x_test, ill_test, ward_test = records(300)


def turn_of_seeker(rows):
    with torch.no_grad():
        code, _ = hider(x[rows])
    loss = F.cross_entropy(seeker(code), ward[rows])
    seeker_optimizer.zero_grad()
    loss.backward()
    seeker_optimizer.step()
    return loss.item()


def turn_of_hider(rows):
    seeker.requires_grad_(False)
    code, diagnosis = hider(x[rows])
    keep = F.cross_entropy(diagnosis, ill[rows])
    found = F.cross_entropy(seeker(code), ward[rows])
    loss = keep - price_of_being_found * found
    hider_optimizer.zero_grad()
    loss.backward()
    hider_optimizer.step()
    seeker.requires_grad_(True)
    return keep.item()


def report(epoch, keep, found):
    hider.eval()
    seeker.eval()
    with torch.no_grad():
        code, diagnosis = hider(x_test)
        right = (diagnosis.argmax(1) == ill_test).float().mean().item()
        caught = (seeker(code).argmax(1) == ward_test).float().mean().item()
    hider.train()
    seeker.train()
    print(f"epoch {epoch}: keep {keep:.3f} found {found:.3f} | diagnosis {right:.3f}, ward found {caught:.3f}")


for epoch in range(6):
    kept, found = [], []
    for number, rows in enumerate(torch.randperm(len(x)).split(32)):
        if number % 2 == 0:
            found.append(turn_of_seeker(rows))
        else:
            kept.append(turn_of_hider(rows))
    report(epoch, np.mean(kept), np.mean(found))
