"""A neural ODE: the field is learned from noisy paths of a damped spring, integrated by Euler steps."""

import torch
from torch import nn

DT, SUBSTEPS, WINDOW = 0.1, 2, 8


def true_field(state):
    position, speed = state.unbind(-1)
    return torch.stack([speed, -2.0 * position - 0.3 * speed - 0.3 * position**3], dim=-1)


def simulate(paths, length, seed):
    g = torch.Generator().manual_seed(seed)
    state = torch.randn(paths, 2, generator=g)
    out = [state]
    for _ in range(length - 1):
        for _ in range(20):
            state = state + DT / 20 * true_field(state)
        out.append(state)
    path = torch.stack(out, dim=1)
    return path, path + 0.02 * torch.randn(path.shape, generator=g)


class Field(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, state):
        return self.net(state)


def integrate(field, state, steps):
    """States after each of the steps, the first one included: (rows, steps + 1, 2)."""
    states = [state]
    h = DT / SUBSTEPS
    for _ in range(steps):
        for _ in range(SUBSTEPS):
            state = state + h * field(state)
        states.append(state)
    return torch.stack(states, dim=1)


def windows(paths):
    """All pieces of a path that are as long as a window."""
    return paths.unfold(1, WINDOW + 1, 1).permute(0, 1, 3, 2).reshape(-1, WINDOW + 1, 2)


if __name__ == "__main__":
    torch.manual_seed(9)
    _, observed = simulate(30, 40, seed=4)
    clean_test, _ = simulate(10, 40, seed=5)
    pieces = windows(observed)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)

    for epoch in range(6):
        field.train()
        total = 0.0
        for rows in torch.randperm(len(pieces)).split(64):
            piece = pieces[rows]
            path = integrate(field, piece[:, 0], WINDOW)
            loss = (path[:, 1:] - piece[:, 1:]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(field.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(rows)
        scheduler.step(total)

        field.eval()
        with torch.no_grad():
            rollout = integrate(field, clean_test[:, 0], clean_test.shape[1] - 1)
            error = (rollout - clean_test).pow(2).mean().sqrt().item()
            still = (clean_test[:, :1] - clean_test).pow(2).mean().sqrt().item()
        print(f"epoch {epoch}: window mse {total / len(pieces):.4f}, rollout rmse {error:.3f} (still {still:.3f})")
