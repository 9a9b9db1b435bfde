"""unregistered-buffer: the buggy and the fixed program."""

import torch
from torch import nn

from tests.checks.programs import Module, plain, twin


@twin("unregistered-buffer")
def _(buggy):
    model = Module(lambda self, x: self.end(x * self.mask), end=lambda: nn.Linear(4, 2))
    if buggy:
        model.mask = torch.ones(4)
    else:
        model.register_buffer("mask", torch.ones(4))
    return plain(model)
