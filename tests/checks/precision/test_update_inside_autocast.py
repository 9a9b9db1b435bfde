"""update-inside-autocast: the buggy and the fixed program."""

import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, mlp, sgd, twin


@twin("update-inside-autocast")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen, torch.autocast("cpu", torch.bfloat16, enabled=buggy):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(X), Y)
            loss.backward()
            optimizer.step()
    return seen.findings
