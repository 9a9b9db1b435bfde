"""Modes can be listed, left out and hidden."""

import torch
from torch.overrides import TorchFunctionMode

from surefoot.torch_inside.modes import (
    TorchDispatchMode,
    aside,
    hide_function_mode,
    in_transform,
    innermost_mode,
    modes_are_on,
    only_function_mode,
    show_function_mode,
    unseen,
    without_function_mode,
    without_modes,
)


class Seeing(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Hearing(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.heard.append(func)
        return func(*args, **(kwargs or {}))


def test_what_is_computed_aside_is_seen_by_no_mode_and_has_no_graph():
    x = torch.ones(2, requires_grad=True)
    with Hearing() as hearing, Seeing() as seeing, aside():
        y = x * 2
    assert seeing.seen == [], "an operator is no longer hidden from dispatch modes"
    assert hearing.heard == []
    assert y.grad_fn is None
    assert torch.is_grad_enabled()


def test_dispatch_modes_are_listed_and_left_out():
    assert not modes_are_on()
    assert innermost_mode() is None
    with Seeing() as outer, Seeing() as inner:
        assert modes_are_on()
        assert innermost_mode() is inner
        for without in (without_modes, unseen):
            with without():
                assert not modes_are_on()
                torch.ones(2).exp()
        assert innermost_mode() is inner
    assert outer.seen == inner.seen == []


def test_a_function_mode_is_hidden_and_shown():
    x = torch.ones(2)
    with Hearing() as mode:
        assert only_function_mode() is mode
        with without_function_mode():
            x.exp()
        assert hide_function_mode(mode)
        assert only_function_mode() is None
        assert not hide_function_mode(mode)
        x.exp()
        show_function_mode(mode)
        x.sin()
    assert mode.heard == [torch.Tensor.sin]


def test_transforms_of_functions_are_noticed():
    seen = []

    def square(x):
        seen.append(in_transform())
        return (x**2).sum()

    torch.func.grad(square)(torch.ones(2))
    square(torch.ones(2))
    assert seen == [True, False]
