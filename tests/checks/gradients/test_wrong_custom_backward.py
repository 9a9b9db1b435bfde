"""wrong-custom-backward: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.programs import Module, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


class Swish(torch.autograd.Function):
    """x times its sigmoid."""

    wrong = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return gradient * (s if Swish.wrong else s * (1 + x * (1 - s)))


@twin("wrong-custom-backward")
def _(buggy):
    Swish.wrong = buggy
    model = Module(lambda self, x: self.end(Swish.apply(self.body(x))),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model)


class Weighed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given, target, slope):
        ctx.save_for_backward(given, target)
        ctx.slope = slope
        return (given - target).square().mean()

    @staticmethod
    def backward(ctx, gradient):
        given, target = ctx.saved_tensors
        return gradient * ctx.slope * (given - target) / given.numel(), None, None


@pytest.mark.parametrize("slope", [2, 1])
def test_a_target_has_no_gradient(slope):
    found = named(plain(mlp(), loss=lambda out, y: Weighed.apply(out, F.one_hot(y, 2).float(), slope)))
    assert found == ([] if slope == 2 else ["wrong-custom-backward"])


class Changed(torch.autograd.Function):
    """Gives what a function of its own makes of a number, and passes the gradient on as it likes."""

    forms = {"reversed": (lambda x: x.clone(), -1.0), "rounded": (torch.round, 1.0), "doubled": (lambda x: 2 * x, 1.0)}
    form = ""

    @staticmethod
    def forward(ctx, x):
        return Changed.forms[Changed.form][0](x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Changed.forms[Changed.form][1]


@pytest.mark.parametrize(("form", "wrong"), [("reversed", False), ("rounded", False), ("doubled", True)])
def test_a_backward_that_stands_in_for_a_derivative_is_fine(form, wrong):
    Changed.form = form
    model = Module(lambda self, x: self.end(Changed.apply(self.body(x)).relu()),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))  # fmt: skip
    assert named(plain(model)) == (["wrong-custom-backward"] if wrong else [])


class Counted(torch.autograd.Function):
    """Returns a constant beside its result, as fused losses do."""

    wrong = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        mean = x.mean()
        ctx.mark_non_differentiable(mean)
        return mean, x.square()

    @staticmethod
    def backward(ctx, _, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * (1 if Counted.wrong else 2)


@pytest.mark.parametrize("wrong", [True, False])
def test_a_constant_among_the_outputs(wrong):
    Counted.wrong = wrong
    model = Module(lambda self, x: self.end(Counted.apply(self.body(x))[1]),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))  # fmt: skip
    assert named(plain(model)) == (["wrong-custom-backward"] if wrong else [])
