"""Sorts of grain from two scales: the new one has no labels, and reversed gradients hide which scale was used."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(19)
SORTS, INPUTS, EPOCHS, BATCH = 3, 10, 8, 32


class ReverseGradient(torch.autograd.Function):
    """The identity forward; backward the gradient is turned round and scaled."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


def weigh(count, generator, new_scale):
    """The new scale shifts some of its readings and stretches the others."""
    sort = torch.randint(SORTS, (count,), generator=generator)
    centres = 1.3 * torch.randn(SORTS, INPUTS, generator=torch.Generator().manual_seed(0))
    readings = centres[sort] + 0.7 * torch.randn(count, INPUTS, generator=generator)
    if new_scale:
        readings = 1.2 * readings + torch.tensor([1.5, -1.0, 0, 0, 0.8, 0, 0, -0.6, 0, 0])
    return readings, sort


class Domains(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(INPUTS, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.sort = nn.Linear(16, SORTS)
        self.domain = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, readings, strength=0.0):
        features = self.features(readings)
        reversed_features = ReverseGradient.apply(features, strength)
        return self.sort(features), self.domain(reversed_features).squeeze(1)


generator = torch.Generator().manual_seed(19)
source = TensorDataset(*weigh(384, generator, new_scale=False))
target = TensorDataset(weigh(288, generator, new_scale=True)[0])
test_readings, test_sort = weigh(200, generator, new_scale=True)
source_loader = DataLoader(source, BATCH, shuffle=True, drop_last=True)
target_loader = DataLoader(target, BATCH, shuffle=True, drop_last=True)

model = Domains()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
sort_loss, domain_loss = nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss()
steps, step = EPOCHS * len(source_loader), 0
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: (1 + 10 * done / steps) ** -0.75)


def endless(loader):
    while True:
        yield from loader


targets = endless(target_loader)
for epoch in range(EPOCHS):
    model.train()
    sums = [0.0, 0.0]
    for readings, sort in source_loader:
        (unlabelled,) = next(targets)
        strength = 2 / (1 + math.exp(-10 * step / steps)) - 1
        sorts, from_source = model(readings, strength)
        _, from_target = model(unlabelled, strength)
        told = sort_loss(sorts, sort)
        scales = torch.cat([torch.zeros(len(readings)), torch.ones(len(unlabelled))])
        apart = domain_loss(torch.cat([from_source, from_target]), scales)
        loss = told + apart
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        sums[0] += told.item()
        sums[1] += apart.item()
    model.eval()
    with torch.no_grad():
        right = (model(test_readings)[0].argmax(dim=1) == test_sort).float().mean().item()
    told, apart = (value / len(source_loader) for value in sums)
    print(f"epoch {epoch + 1} sort {told:.3f} scale {apart:.3f} accuracy on the new scale {right:.3f}")
torch.save(model.state_dict(), "grain.pt")
