import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(4)


def mlp(sizes):
    layers = []
    for inside, outside in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


teacher = mlp([6, 32, 32, 3])
student = mlp([6, 8, 3])
features = torch.randn(120, 6)
labels = teacher(features).argmax(1)
everything = TensorDataset(features, labels)
training, testing = random_split(everything, [90, 30])
loader = DataLoader(training, batch_size=15, shuffle=True)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
heat = 2.0


def soft_loss(wanted, given, heat):
    log_probabilities = F.log_softmax(given / heat, dim=1)
    probabilities = F.softmax(wanted / heat, dim=1)
    return F.kl_div(log_probabilities, probabilities, reduction="batchmean")


def hard_loss(given, targets):
    return F.cross_entropy(given, targets)


for x, y in loader:
    with torch.no_grad():
        wanted = teacher(x)
    given = student(x)
    loss = 0.5 * soft_loss(wanted, given, heat) + 0.5 * hard_loss(given, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
