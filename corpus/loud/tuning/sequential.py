import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
grid = rng.uniform(-1, 1, size=(60, 4)).astype(np.float32)
height = (np.sin(3 * grid[:, :1]) + grid[:, 1:2] ** 2).astype(np.float32)

model = nn.Sequential(
    nn.Linear(4, 24),
    nn.Tanh(),
    nn.Linear(24, 24),
    nn.Tanh(),
    nn.Linear(24, 1),
)
loss_function = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)


def batches(size):
    order = rng.permutation(len(grid))
    for start in range(0, len(grid), size):
        chosen = order[start : start + size]
        yield torch.from_numpy(grid[chosen]), torch.from_numpy(height[chosen])


def penalty(weight):
    total = 0
    for each in model:
        if isinstance(each, nn.Linear):
            total = total + each.weight.square().sum()
    return weight * total


epoch = 0
while epoch < 3:
    for inputs, wanted in batches(12):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = loss_function(outputs, wanted) + penalty(1e-4)
        loss.backward()
        optimizer.step()
    scheduler.step()
    epoch += 1
