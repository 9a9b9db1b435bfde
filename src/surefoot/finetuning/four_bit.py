"""A frozen linear layer in 4 bits (NF4 with double quantisation), by bitsandbytes' kernels.

bitsandbytes' own layer keeps its scales in an attribute that checkpoints do not see, and in evaluation it may repack
its weight in place. Here the scales are buffers, and the weight is never changed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from surefoot.randomness import kept
from surefoot.torch_inside.modes import unseen
from surefoot.torch_inside.modules import save_own_tensors


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
        packed, state = _in_four_bits(layer.weight, compute)
        self.weight = Packed(packed, requires_grad=False)
        self.weight.quant_type, self.weight.compress_statistics = "nf4", True  # a fake tensor has no class of ours
        self.bias = layer.bias
        self.quant_state = state
        for name, scales in _scales(state).items():
            self.register_buffer(name, scales)  # the state holds the same tensors, so it follows what is loaded
        self._is_hf_initialized = True  # transformers would draw new numbers for the bytes

    @property
    def whole_numel(self) -> int:
        """The number of weights; two share a byte."""
        return self.in_features * self.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        out = bnb.matmul_4bit(x.to(self.compute_dtype), self.weight, bias=bias, quant_state=self.quant_state)
        return out.to(x.dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        save_own_tensors(self, destination, prefix, keep_vars)

    @property
    def shape(self) -> torch.Size:
        """That of the weight before it was packed."""
        return torch.Size((self.out_features, self.in_features))

    @property
    def dtype(self) -> torch.dtype:
        """The format of a weight before it is packed."""
        return self.compute_dtype

    @torch.no_grad()
    def copy_(self, weight: torch.Tensor) -> None:
        """Packs another weight in place. One with another number of rows replaces or gives as many as both have."""
        if weight.shape != self.shape:
            whole, rows = self.whole(self.dtype).weight, min(len(weight), self.out_features)
            whole[:rows].copy_(weight[:rows])
            weight = whole
        packed, state = _in_four_bits(weight.to(self.weight.device), self.dtype)
        self.weight.copy_(packed)
        for name, scales in _scales(state).items():
            self.get_buffer(name).copy_(scales)

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


def _in_four_bits(weight: torch.Tensor, compute: torch.dtype) -> tuple[torch.Tensor, Any]:
    """The packed bytes of a weight, and its scales."""
    whole = weight.detach().to(compute).contiguous()
    packed, state = quantize_4bit(whole, quant_type="nf4", compress_statistics=True)
    return packed, state


def _scales(state: Any) -> dict[str, torch.Tensor]:
    return {"absmax": state.absmax, "offset": state.offset, "nested_absmax": state.state2.absmax}


def built_in_four_bits(
    build: Callable[[], nn.Module], names_of: Callable[[nn.Module], Iterable[str]], compute: torch.dtype
) -> nn.Module:
    """The model that `build` makes, with the linear layers that `names_of` names in 4 bits.

    A layer is packed as soon as the model gets it: the model is never whole, only one of its layers is. A model without
    memory is built first, because the names are known only at the end.
    """
    layers: list[nn.Linear] = []
    with unseen(), kept(), torch.device("meta"), _new_linear_layers(lambda _, layer: layers.append(layer)):
        model = build()
        chosen = {id(model.get_submodule(name)) for name in names_of(model)}
    numbers = {number for number, layer in enumerate(layers) if id(layer) in chosen}
    del model
    layers.clear()
    with _new_linear_layers(lambda number, layer: FourBitLinear(layer, compute) if number in numbers else None):
        return build()


@contextmanager
def _new_linear_layers(change: Callable[[int, nn.Linear], nn.Module | None]) -> Iterator[None]:
    """Calls `change` with each linear layer that a module gets, once, and its number. What it returns replaces it."""
    changed, numbers = WeakKeyDictionary[nn.Module, nn.Module | None](), itertools.count()

    def registered(module: nn.Module, name: str, layer: nn.Module | None) -> nn.Module | None:
        if type(layer) is not nn.Linear:
            return None
        if layer not in changed:
            changed[layer] = change(next(numbers), layer)
        return changed[layer]

    handle = register_module_module_registration_hook(registered)  # type: ignore[arg-type]  # torch's hint omits the result
    try:
        yield
    finally:
        handle.remove()


def dequantise(model: nn.Module, dtype: torch.dtype) -> None:
    """Puts every 4-bit layer of a model back into a number format."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, FourBitLinear):
            model.set_submodule(name, layer.whole(dtype))
