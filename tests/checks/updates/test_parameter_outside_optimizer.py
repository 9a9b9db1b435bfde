"""parameter-outside-optimizer: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import Y, mlp, named, numbers, plain, sgd, twin

pytestmark = pytest.mark.sweep


@twin("parameter-outside-optimizer")
def _(buggy):
    model = mlp()
    return plain(model, optimizer=sgd(model[2] if buggy else model))


@pytest.mark.parametrize(("copied_back", "expected"), [(True, []), (False, ["parameter-outside-optimizer"])])
def test_weights_that_are_copied_from_others_in_full_precision_are_trained(copied_back, expected):
    model = mlp().bfloat16()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for n in range(4):
            F.cross_entropy(model(numbers(8, 4, seed=n).bfloat16()).float(), Y).backward()
            for p, master in zip(model.parameters(), masters, strict=True):
                master.grad, p.grad = p.grad.float(), None
            optimizer.step()
            for p, master in zip(model.parameters(), masters, strict=True) if copied_back else ():
                p.data.copy_(master.data)
    assert named(seen.findings) == expected
