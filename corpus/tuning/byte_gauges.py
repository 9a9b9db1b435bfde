"""Quantisation-aware training: weights and activations go through 8-bit rounding with a straight-through gradient."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class FakeQuantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        q = torch.round(x / scale)
        ctx.save_for_backward((q >= low) & (q <= high))
        return q.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None


class QuantLinear(nn.Linear):
    def forward(self, x):
        scale = self.weight.detach().abs().amax() / 127
        return nn.functional.linear(x, FakeQuantise.apply(self.weight, scale, -127, 127), self.bias)


class QuantReLU(nn.Module):
    """Unsigned activations; the range is a moving maximum, kept with the model."""

    def __init__(self, momentum=0.05):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("top", torch.tensor(0.0))
        self.enabled = False

    def forward(self, x):
        x = torch.relu(x)
        if self.training:
            peak = x.detach().max()
            self.top.copy_(peak if self.top == 0 else self.top + self.momentum * (peak - self.top))
        if not self.enabled:
            return x
        return FakeQuantise.apply(x, self.top / 255, 0, 255)


def gauges(n, seed):
    g = torch.Generator().manual_seed(seed)
    needle = torch.rand(n, generator=g)
    ticks = torch.linspace(0, 1, 24)
    image = torch.exp(-(((ticks - needle[:, None]) / 0.06) ** 2)) + 0.1 * torch.randn(n, 24, generator=g)
    return image, (needle * 6).long()


@torch.no_grad()
def evaluate(model, loader):
    was = model.training
    model.eval()
    loss, right, rows = 0.0, 0, 0
    for image, zone in loader:
        logits = model(image)
        loss += nn.functional.cross_entropy(logits, zone, reduction="sum").item()
        right += int((logits.argmax(dim=1) == zone).sum())
        rows += len(zone)
    model.train(was)
    return loss / rows, right / rows


def run(model, train_loader, test_loader, optimizer, epochs, name):
    for epoch in range(epochs):
        model.train()
        for image, zone in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(image), zone)
            loss.backward()
            optimizer.step()
        loss, accuracy = evaluate(model, test_loader)
        print(f"{name} {epoch}: test loss {loss:.3f} accuracy {accuracy:.3f}")


torch.manual_seed(77)
train_loader = DataLoader(TensorDataset(*gauges(512, 1)), batch_size=32, shuffle=True)
test_loader = DataLoader(TensorDataset(*gauges(150, 2)), batch_size=64)
model = nn.Sequential(QuantLinear(24, 48), QuantReLU(), QuantLinear(48, 32), QuantReLU(), nn.Linear(32, 6))

# first the ranges settle, then the activations are rounded too, with a smaller rate
run(model, train_loader, test_loader, torch.optim.Adam(model.parameters(), lr=3e-3), 4, "float activations")
for module in model:
    if isinstance(module, QuantReLU):
        module.enabled = True
run(model, train_loader, test_loader, torch.optim.Adam(model.parameters(), lr=5e-4), 3, "8-bit activations")
