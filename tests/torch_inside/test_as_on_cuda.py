"""Optimizers use lists for fake CPU tensors, and kernels are registered for a while."""

import pytest
import torch
from torch.optim import optimizer as optimizers

from surefoot.torch_inside.as_on_cuda import library, lists_by_default
from surefoot.torch_inside.fake_mode import FakeMode
from surefoot.torch_inside.modes import TorchDispatchMode


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_lists_are_used_for_fake_tensors_inside_and_not_after():
    used = []
    for inside in (True, False):
        with FakeMode(), Names() as names:
            weight = torch.nn.Parameter(torch.ones(2))
            weight.grad = torch.ones(2)
            optimizer = torch.optim.SGD([weight], lr=0.1)
            if inside:
                with lists_by_default():
                    optimizer.step()
            else:
                optimizer.step()
        used.append(any(name.startswith("_foreach_") for name in names.seen))
    assert used == [True, False]
    assert "cpu" not in optimizers._get_foreach_kernels_supported_devices()


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_kernel_is_registered_for_a_while():
    x = torch.ones(2)
    with library() as kernels:
        kernels.impl("erfinv", lambda self: self + 41, "CPU")
        assert torch.erfinv(x)[0] == 42
    assert torch.erfinv(x)[0] == torch.inf
