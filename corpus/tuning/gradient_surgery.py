"""Two tasks on one trunk: where their gradients are at odds, each loses what hurts the other before the step."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def engines(count, seed):
    """Vibrations of an engine; which fault it has, and how many (scaled) hours it has left."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=g)
    scores = torch.stack([x[:, 0] + x[:, 1] * x[:, 2], x[:, 3] - x[:, 0], 0.8 * x[:, 4] - x[:, 1]], dim=1)
    fault = scores.argmax(dim=1)
    hours = torch.tanh(x[:, 0] - x[:, 3]) + 0.5 * x[:, 5] + 0.2 * torch.randn(count, generator=g)
    return x, fault, hours


class TwoTasks(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.fault = nn.Linear(width, 3)
        self.hours = nn.Linear(width, 1)

    def forward(self, x):
        x = self.trunk(x)
        return self.fault(x), self.hours(x).squeeze(1)


def flatten(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def without_conflict(mine, theirs):
    """My gradient without what points against theirs."""
    dot = torch.dot(mine, theirs)
    if dot >= 0:
        return mine
    return mine - dot / theirs.square().sum().clamp(min=1e-12) * theirs


def set_gradients(model, losses):
    """Writes the gradients: of the trunk after surgery, of each head from its own task."""
    trunk = list(model.trunk.parameters())
    heads = [list(model.fault.parameters()), list(model.hours.parameters())]
    flat = []
    for i, (loss, head) in enumerate(zip(losses, heads, strict=True)):
        grads = torch.autograd.grad(loss, trunk + head, retain_graph=i == 0)
        flat.append(flatten(grads[: len(trunk)]))
        for parameter, grad in zip(head, grads[len(trunk) :], strict=True):
            parameter.grad = grad
    a, b = flat
    total = without_conflict(a, b) + without_conflict(b, a)
    for parameter, part in zip(trunk, total.split([p.numel() for p in trunk]), strict=True):
        parameter.grad = part.view_as(parameter).clone()
    return bool(torch.dot(a, b) < 0)


@torch.no_grad()
def evaluate(model, x, fault, hours, batch_size=64):
    model.eval()
    right = squared = 0.0
    for i in range(0, len(x), batch_size):
        part = slice(i, i + batch_size)
        logits, guess = model(x[part])
        right += (logits.argmax(dim=1) == fault[part]).sum().item()
        squared += (guess - hours[part]).square().sum().item()
    model.train()
    return right / len(x), squared / len(x)


def main():
    torch.manual_seed(87)
    x, fault, hours = engines(960, seed=1)
    test = engines(200, seed=2)
    model = TwoTasks()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        sums, conflicts, batches = torch.zeros(2), 0, 0
        for rows in torch.randperm(len(x)).split(32):
            logits, guess = model(x[rows])
            losses = (F.cross_entropy(logits, fault[rows]), F.mse_loss(guess, hours[rows]))
            conflicts += set_gradients(model, losses)
            optimizer.step()
            sums += torch.stack(losses).detach()
            batches += 1
        first, second = (sums / batches).tolist()
        right, error = evaluate(model, *test)
        print(
            f"epoch {epoch}: fault {first:.3f}, hours {second:.3f}, {conflicts} conflicts; "
            f"test: right {right:.3f}, squared error {error:.3f}"
        )


if __name__ == "__main__":
    main()
