"""Programs that tests of several rules about gradients share."""

import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, mlp, sgd


def accumulated(divide, *, inside=False, targets=None):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            for number in range(4):
                if inside:
                    optimizer.zero_grad()
                y = Y if targets is None else targets[number]
                (F.cross_entropy(model(X + number), y) / divide).backward()
            optimizer.step()
    return seen.findings


PARTS = X.chunk(2), (torch.tensor([0, 1, 1, 0]), torch.tensor([1, 1, 0, 1]))
