"""parameter-in-two-optimizers: the buggy and the fixed program."""

import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, mlp, sgd, twin


@twin("parameter-in-two-optimizers")
def _(buggy):
    model = mlp()
    first, second = sgd(model if buggy else model[0]), sgd(model if buggy else model[2])
    with surefoot.watch(model, first, second) as seen:
        for _ in range(3):
            model.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            first.step()
            second.step()
    return seen.findings
