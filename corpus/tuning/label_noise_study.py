"""How much of wrong labels does a network learn by heart? A third of them is replaced on purpose, all are watched."""

import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.default_rng(12)
torch.manual_seed(12)
CLASSES, ROWS, WRONG = 4, 480, 0.33


def blobs(count, centres):
    kind = rng.integers(0, CLASSES, count)
    return (centres[kind] + rng.normal(0, 0.7, (count, 2))).astype(np.float32), kind


centres = np.array([[1.5, 1.5], [-1.5, 1.5], [-1.5, -1.5], [1.5, -1.5]])
x, true_kind = blobs(ROWS, centres)
x_test, test_kind = blobs(120, centres)
spoiled = rng.random(ROWS) < WRONG
given_kind = np.where(spoiled, rng.integers(0, CLASSES, ROWS), true_kind)

x, given, true = torch.from_numpy(x), torch.from_numpy(given_kind), torch.from_numpy(true_kind)
x_test, test_kind = torch.from_numpy(x_test), torch.from_numpy(test_kind)
spoiled = torch.from_numpy(spoiled)

net = torch.nn.Sequential(
    torch.nn.Linear(2, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, CLASSES),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
report = []
for epoch in range(10):
    order = torch.from_numpy(rng.permutation(ROWS))
    for start in range(0, ROWS, 40):
        rows = order[start : start + 40]
        loss = F.cross_entropy(net(x[rows]), given[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        guess = net(x).argmax(dim=1)
        learned = (guess == given)[spoiled & (given != true)].float().mean().item()
        kept = (guess == true)[spoiled].float().mean().item()
        right = (net(x_test).argmax(dim=1) == test_kind).float().mean().item()
    report.append((epoch, learned, kept, right))
    print(f"epoch {epoch}: wrong labels learned {learned:.1%}, seen through {kept:.1%}, test {right:.1%}")
np.savetxt("noise.csv", np.array(report), delimiter=",")
