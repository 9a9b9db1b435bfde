"""Int8 weights for linear layers, by torchao, and their form in safetensors: plain names, no pickle, no class.

A weight `x.weight` is stored as int8 under its own name, and its scales, a float32 for each row, as `x.weight.scale`.
The file's metadata says which kind it is. Weights that two modules share, and all other layers, stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from surefoot.checkpoint.consolidate import names_of
from surefoot.errors import RunError
from surefoot.exports.format_table import GGUF_KINDS
from surefoot.exports.formats import need
from surefoot.finetuning.quiet import quiet

KINDS = {
    "int8": "weights in int8; computed in the number format of the inputs",
    "int8-dynamic": "weights in int8; inputs rounded to int8 as they come",
}
SCALE = ".scale"
Header = Mapping[str, tuple[tuple[int, ...], torch.dtype | None]]
"""Shape and number format of each tensor of a file."""


def check_kind(kind: str) -> None:
    """Refuses a kind that does not exist, and a torchao that is not installed."""
    if kind not in KINDS:
        raise RunError(f"no quantisation {kind!r}; known: {', '.join((*KINDS, *GGUF_KINDS))}")
    _torchao()


def quantize(model: nn.Module, kind: str, names: Collection[str] | None = None) -> list[str]:
    """Quantises the linear layers of a model in place, or those with these weights. Returns the weights' names."""
    check_kind(kind)
    library, chosen = _torchao(), [name for name in weights_of(model) if names is None or name in names]
    config = library.Int8WeightOnlyConfig if kind == "int8" else library.Int8DynamicActivationInt8WeightConfig
    layers = {name.rpartition(".")[0] for name in chosen}
    with quiet(), torch.no_grad():
        # torch.compile's settings belong to the user's process
        library.quantize_(model, config(set_inductor_config=False), filter_fn=lambda _, name: name in layers)
    return chosen


def weights_of(model: nn.Module) -> list[str]:
    """The weights that can be quantised: those of linear layers, in floating point, that no other module shares."""
    users: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    return [
        f"{name}.weight".removeprefix(".")  # a model may be one layer
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and not isinstance(module, NonDynamicallyQuantizableLinear)  # torch's attention reads it in other ways
        and type(module.weight) is nn.Parameter
        and module.weight.is_floating_point()
        and users[id(module.weight)] == 1
    ]


def stored(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a quantised model as a file holds them."""
    state, found = model.state_dict(), {}
    for name in names_of(model):
        value: Any = state[name]
        if hasattr(value, "qdata"):
            found[name], found[name + SCALE] = value.qdata, value.scale
        else:
            found[name] = value
    return {name: each.detach().cpu().contiguous().clone() for name, each in found.items()}


def quantised_in(there: Header) -> set[str]:
    """The names of the quantised weights of a file."""
    names = (name.removesuffix(SCALE) for name in there if name.endswith(SCALE))
    return {name for name in names if name in there and there[name][1] == torch.int8}


def as_whole(model: nn.Module, file: Path, there: Header, kind: str) -> Header:
    """What the file would hold if it were not quantised. Refuses one whose scales do not fit."""
    if kind not in KINDS:
        raise RunError(f"{file} has the quantisation {kind!r}, which surefoot does not know; known: {', '.join(KINDS)}")
    names, able = quantised_in(there), {*weights_of(model)}
    state = model.state_dict()
    for name in sorted(names & state.keys()):
        rows = there[name][0][:1]
        if name not in able or there[name + SCALE] != ((*rows, 1), torch.float32):
            raise RunError(f"{file} is damaged: {name} is int8, without a float32 scale for each of its rows")
    return {
        name: (shape, state[name].dtype if name in names and name in state else dtype)
        for name, (shape, dtype) in there.items()
        if name.removesuffix(SCALE) == name or name.removesuffix(SCALE) not in names
    }


def fill(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copies tensors of a file into a model of the same quantisation. A tied tensor has one name in the file."""
    state: dict[str, Any] = model.state_dict()
    held = {name for name, each in state.items() if hasattr(each, "qdata")}
    with torch.no_grad():
        for name in held & tensors.keys():
            state[name].qdata.copy_(tensors[name])
            state[name].scale.copy_(tensors[name + SCALE])
    plain = {name: each for name, each in tensors.items() if name not in held and name.removesuffix(SCALE) not in held}
    model.load_state_dict(plain, strict=False)


def _torchao() -> Any:
    with quiet():  # it logs the kernels for other devices that it could not load
        return need("torchao", "quantize", "quantisation").quantization
