"""Loops of torch.func: losses inside transforms are seen, and called once more without a trace."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, looped

pytestmark = pytest.mark.sweep


def by_function(loss, *, hand_on=True, of_samples=False):
    """A loop whose gradients `torch.func` gives."""

    def body(model, optimizer):
        values = {name: each.detach() for name, each in model.named_parameters()}

        def mean(values, x, y):
            return loss(torch.func.functional_call(model, values, (x,)), y)

        def single(values, x, y):
            return mean(values, x[None], y[None])

        if of_samples:
            grads = torch.func.vmap(torch.func.grad(single), in_dims=(None, 0, 0))(values, X, Y)
            grads = {name: each.mean(0) for name, each in grads.items()}
        else:
            grads, _ = torch.func.grad_and_value(mean)(values, X, Y)
        for name, each in model.named_parameters():
            each.grad = grads[name] if hand_on else None
        optimizer.step()

    return looped(body)


@pytest.mark.parametrize("of_samples", [True, False])
def test_losses_inside_transforms_are_seen_from_outside(of_samples):
    assert by_function(F.cross_entropy, of_samples=of_samples) == []
    assert by_function(lambda x, y: F.cross_entropy(x.softmax(-1), y), of_samples=of_samples) == [
        "softmax-before-cross-entropy"
    ]
    assert by_function(F.cross_entropy, of_samples=of_samples, hand_on=False) == ["update-without-gradients"]


def test_a_function_is_called_once_more_without_a_trace():
    def loss(values, buffers, model):
        return F.cross_entropy(torch.func.functional_call(model, (values, buffers), (X,)), Y)

    def numbers_of(watched):
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        values = dict(model.named_parameters())
        with surefoot.watch(model) if watched else torch.enable_grad():
            for _ in range(3):
                grads = torch.func.grad(loss)(values, dict(model.named_buffers()), model)
                with torch.no_grad():
                    for name, each in model.named_parameters():
                        each -= 0.1 * grads[name]
        return [*model.parameters(), *model.buffers(), torch.rand(1)]

    assert all(map(torch.equal, numbers_of(True), numbers_of(False)))
