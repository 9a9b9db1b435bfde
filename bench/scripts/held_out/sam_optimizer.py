"""Trains a wide network with sharpness-aware minimisation: two forwards and backwards for each update."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, adaptive=False, **kwargs):
        assert rho >= 0.0, f"Invalid rho, should be non-negative: {rho}"
        super().__init__(params, {"rho": rho, "adaptive": adaptive, **kwargs})
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                e_w = (torch.pow(p, 2) if group["adaptive"] else 1.0) * p.grad * scale.to(p)
                p.add_(e_w)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is not None, "SAM requires a closure"
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()

    def _grad_norm(self):
        shared = self.param_groups[0]["params"][0].device
        return torch.norm(
            torch.stack(
                [
                    ((torch.abs(p) if group["adaptive"] else 1.0) * p.grad).norm(p=2).to(shared)
                    for group in self.param_groups
                    for p in group["params"]
                    if p.grad is not None
                ]
            ),
            p=2,
        )


def set_running_statistics(model, on):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            if on and hasattr(m, "backup_momentum"):
                m.momentum = m.backup_momentum
            elif not on:
                m.backup_momentum, m.momentum = m.momentum, 0


class Wide(nn.Module):
    def __init__(self, width=4, classes=10):
        super().__init__()
        c = 16 * width
        self.conv = nn.Conv2d(3, c, 3, 1, 1, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(c),
                nn.ReLU(),
                nn.Conv2d(c, c, 3, 1, 1, bias=False),
                nn.BatchNorm2d(c),
                nn.ReLU(),
                nn.Conv2d(c, c, 3, 1, 1, bias=False),
            )
            for _ in range(2)
        )
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        x = F.max_pool2d(self.conv(x), 2)
        for b in self.blocks:
            x = x + b(x)
        return self.fc(F.relu(x).mean((2, 3)))


if __name__ == "__main__":
    torch.manual_seed(42)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Wide().to(device)
    optimizer = SAM(
        model.parameters(), torch.optim.SGD, rho=2.0, adaptive=True, lr=0.1, momentum=0.9, weight_decay=5e-4
    )
    loader = DataLoader(TensorDataset(torch.randn(96, 3, 32, 32), torch.randint(0, 10, (96,))), 16, shuffle=True)
    for inputs, targets in loader:
        inputs, targets = (b.to(device) for b in (inputs, targets))
        set_running_statistics(model, True)
        predictions = model(inputs)
        loss = F.cross_entropy(predictions, targets, label_smoothing=0.1, reduction="none")
        loss.mean().backward()
        optimizer.first_step(zero_grad=True)
        set_running_statistics(model, False)
        second = F.cross_entropy(model(inputs), targets, label_smoothing=0.1)
        second.backward()
        optimizer.second_step(zero_grad=True)
        accuracy = (torch.argmax(predictions.data, 1) == targets).float().mean().item()
        print(f"loss {loss.mean().item():.4f} after ascent {second.item():.4f} accuracy {accuracy:.3f}")
