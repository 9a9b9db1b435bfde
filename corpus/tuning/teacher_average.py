"""Few labels, many pictures: the student agrees with a slow average of itself on pictures nobody labelled."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIDE = 3, 8


def blobs(count, seed):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (count,), generator=g)
    images = 0.5 * torch.randn(count, 1, SIDE, SIDE, generator=g)
    for image, kind in zip(images, label.tolist(), strict=True):
        corner = (slice(0, 4), slice(4, 8), slice(2, 6))[kind]
        image[0, corner, corner] += 1.0
    return images - 0.25, label


def shaken(x):
    return x.roll(int(torch.randint(-1, 2, ())), dims=3) + 0.2 * torch.randn_like(x)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(12 * 16, CLASSES),
    )


@torch.no_grad()
def follow(teacher, student, decay):
    for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
        slow.mul_(decay).add_(fast, alpha=1 - decay)
    for slow, fast in zip(teacher.buffers(), student.buffers(), strict=True):
        slow.copy_(fast)


def accuracy(net, loader):
    net.eval()
    with torch.no_grad():
        return sum((net(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


torch.manual_seed(23)
few = TensorDataset(*blobs(48, seed=1))
many, _ = blobs(480, seed=2)
test = DataLoader(TensorDataset(*blobs(120, seed=3)), batch_size=40)
labelled = DataLoader(few, batch_size=12, shuffle=True)
unlabelled = DataLoader(many, batch_size=32, shuffle=True)
student = network()
teacher = copy.deepcopy(student).requires_grad_(False).eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.03, momentum=0.9)
step, source = 0, iter(labelled)
for epoch in range(3):
    student.train()
    for x_free in unlabelled:
        try:
            x, y = next(source)
        except StopIteration:
            source = iter(labelled)
            x, y = next(source)
        with torch.no_grad():
            opinion = teacher(shaken(x_free)).softmax(dim=1)
        agreement = F.mse_loss(student(shaken(x_free)).softmax(dim=1), opinion)
        ramp = min(1.0, step / 20)
        loss = F.cross_entropy(student(shaken(x)), y) + 5.0 * ramp * agreement
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        follow(teacher, student, decay=min(0.97, 1 - 1 / (step + 1)))
    print(
        f"{epoch}: loss {loss.item():.3f}, student {accuracy(student, test):.3f}, teacher {accuracy(teacher, test):.3f}"
    )
