"""parameter-outside-optimizer: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, named, numbers, plain, sgd, twin

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


class Adapter(nn.Module):
    """A low-rank adapter. The hook that adds it reads its parameters, and never calls it."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Parameter(numbers(2, 4)), nn.Parameter(torch.zeros(8, 2))


@pytest.mark.parametrize(("form", "expected"), [("left out", True), ("held", False), ("moved by hand", False)])
def test_an_adapter_that_the_optimizer_misses_is_registered(form, expected):
    model, adapter = mlp(), Adapter()
    model[0].register_forward_hook(lambda _, given, out: out + given[0] @ adapter.down.T @ adapter.up.T)
    held = [*model.parameters(), *(adapter.parameters() if form == "held" else ())]

    def move(_):
        with torch.no_grad():
            for each in adapter.parameters():
                each -= 0.1 * each.grad

    after = move if form == "moved by hand" else None
    found = plain(model, optimizer=torch.optim.SGD(held, lr=0.1), after=after)
    assert [(each.check, each.severity) for each in found.findings if each.severity != "info"] == (
        [("parameter-outside-optimizer", "warning")] if expected else []
    )
    if expected:
        assert "2 of 6 parameters" in found.findings[0].seen
        assert found.findings[0].where == "Adapter"


@pytest.mark.parametrize("frozen", [True, False])
def test_a_partly_frozen_body_is_no_teacher(frozen):
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8)), nn.Linear(8, 2)
    body[0].requires_grad_(not frozen)
    optimizer = sgd(head)
    with surefoot.watch() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(head(body(X)), Y).backward()
            optimizer.step()
    assert named(seen.findings) == ["parameter-outside-optimizer" if frozen else "gradients-into-fixed-network"]


def test_a_layer_named_by_a_number_is_called_a_module():
    model = mlp()
    assert plain(model, optimizer=sgd(model[2])).findings[0].where == "module 0"
