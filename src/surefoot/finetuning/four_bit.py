"""A frozen linear layer in 4 bits (NF4 with double quantisation), by bitsandbytes' kernels.

bitsandbytes' own layer keeps its scales in an attribute that checkpoints do not see, and in evaluation it may repack
its weight in place. Here the scales are buffers, and the weight is never changed.
"""

from __future__ import annotations

import functools
from typing import Any

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from torch import nn

from surefoot.world.world import unseen


class Packed(nn.Parameter):
    """Two weights in each byte. peft asks it how they were made, in copies of the model too."""

    quant_type = "nf4"
    compress_statistics = True


class FourBitLinear(bnb.nn.Linear4bit):
    """Made from a linear layer. peft puts its own adapters for 4-bit layers on it."""

    def __init__(self, layer: nn.Linear, compute: torch.dtype) -> None:
        nn.Module.__init__(self)  # that of the class above would allocate a weight of 32 bits first
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.compute_dtype = compute
        _make_tables()
        packed, state = quantize_4bit(
            layer.weight.detach().to(compute).contiguous(), quant_type="nf4", compress_statistics=True
        )
        self.weight = Packed(packed, requires_grad=False)
        self.weight.quant_type, self.weight.compress_statistics = "nf4", True  # a fake tensor has no class of ours
        self.bias = layer.bias
        self.quant_state = state
        for name, scales in (
            ("absmax", state.absmax),
            ("offset", state.offset),
            ("nested_absmax", state.state2.absmax),
        ):
            self.register_buffer(name, scales)  # the state holds the same tensors, so it follows what is loaded

    @property
    def whole_numel(self) -> int:
        """The number of weights; two share a byte."""
        return self.in_features * self.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        out = bnb.matmul_4bit(x.to(self.compute_dtype), self.weight, bias=bias, quant_state=self.quant_state)
        return out.to(x.dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        nn.Module._save_to_state_dict(self, destination, prefix, keep_vars)

    def whole(self, dtype: torch.dtype) -> nn.Linear:
        """The layer with a number for each weight again, rounded to 4 bits."""
        weight = dequantize_4bit(self.weight, self.quant_state).to(dtype)
        made = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        made.weight = nn.Parameter(weight, requires_grad=False)
        made.bias = self.bias
        return made


@functools.cache
def _make_tables() -> None:
    """Lets bitsandbytes make the tables that it keeps for the process. Made in a fake world, they would be fake."""
    with unseen():
        quantize_4bit(torch.zeros(64, 64), quant_type="nf4", compress_statistics=True)


def quantise(model: nn.Module, names: list[str], compute: torch.dtype) -> None:
    """Puts the named linear layers of a model into 4 bits, one after the other."""
    for name in names:
        layer = model.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        model.set_submodule(name, FourBitLinear(layer, compute))


def dequantise(model: nn.Module, dtype: torch.dtype) -> None:
    """Puts every 4-bit layer of a model back into a number format."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, FourBitLinear):
            model.set_submodule(name, layer.whole(dtype))
