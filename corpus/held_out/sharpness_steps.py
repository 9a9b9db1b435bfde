"""Handwritten tide tables read by a small network with SAM: uphill first, downhill with the gradient found there."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    """Sharpness-aware minimisation around another optimizer."""

    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self):
        norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old"] = p.detach().clone()
                p.add_(p.grad * scale)

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.copy_(self.state[p]["old"])
        self.base_optimizer.step()

    def step(self, closure=None):
        raise RuntimeError("call first_step and second_step")

    def _grad_norm(self):
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        return torch.stack([grad.norm() for grad in grads]).norm()


def make_digits(count, generator):
    """Ten strokes of seven segments each, thick or thin, with smudges."""
    segments = torch.tensor(
        [
            [1, 1, 1, 0, 1, 1, 1],
            [0, 0, 1, 0, 0, 1, 0],
            [1, 0, 1, 1, 1, 0, 1],
            [1, 0, 1, 1, 0, 1, 1],
            [0, 1, 1, 1, 0, 1, 0],
            [1, 1, 0, 1, 0, 1, 1],
            [1, 1, 0, 1, 1, 1, 1],
            [1, 0, 1, 0, 0, 1, 0],
            [1, 1, 1, 1, 1, 1, 1],
            [1, 1, 1, 1, 0, 1, 1],
        ]
    ).float()
    digit = torch.randint(10, (count,), generator=generator)
    strokes = torch.rand(7, 28, generator=torch.Generator().manual_seed(0))
    ink = 0.7 + 0.6 * torch.rand(count, 1, generator=generator)
    return ink * segments[digit] @ strokes + 0.15 * torch.randn(count, 28, generator=generator), digit


def main():
    torch.manual_seed(23)
    generator = torch.Generator().manual_seed(23)
    train_x, train_y = make_digits(480, generator)
    test_x, test_y = make_digits(160, generator)
    centre = train_x.mean(dim=0)
    loader = DataLoader(TensorDataset(train_x - centre, train_y), batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Linear(28, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer.base_optimizer, T_max=6)
    for epoch in range(6):
        model.train()
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.first_step()
            optimizer.zero_grad()

            F.cross_entropy(model(x), y).backward()
            optimizer.second_step()
            optimizer.zero_grad()
            total += loss.item() * len(y)
        scheduler.step()
        model.eval()
        with torch.no_grad():
            right = (model(test_x - centre).argmax(dim=1) == test_y).float().mean().item()
        print(f"epoch {epoch + 1} loss {total / len(train_y):.4f} accuracy {right:.3f}")
    torch.save({"model": model.state_dict(), "centre": centre}, "tides.pt")


if __name__ == "__main__":
    main()
