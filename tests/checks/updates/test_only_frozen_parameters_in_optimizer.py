"""only-frozen-parameters-in-optimizer: the buggy and the fixed program."""

import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, mlp, plain, sgd, twin


@twin("only-frozen-parameters-in-optimizer")
def _(buggy):
    model = mlp()
    if buggy:
        model[2].requires_grad_(False)
        return plain(model, optimizer=sgd(model[2]))
    with surefoot.watch(model) as seen:
        for trained, frozen in ((model[2], model[0]), (model[0], model[2])):
            frozen.requires_grad_(False)
            optimizer = sgd(trained.requires_grad_())
            for _ in range(4):
                optimizer.zero_grad()
                F.cross_entropy(model(X), Y).backward()
                optimizer.step()
    return seen.findings
