"""The tensors of a step that have a name: who made each, who reads it, and which share a storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from surefoot.debug.look.modules import Modules, form_of, storage_of
from surefoot.events.phases import Phases
from surefoot.records.looked import LookedTensor


def tensors_of(seen: Modules, phases: Phases) -> list[LookedTensor]:
    """Parameters and buffers of the models, inputs of the models, and outputs of modules."""
    named = list(_named(seen, phases))
    sharing: dict[int, list[str]] = defaultdict(list)
    storages = [storage_of(tensor) for _, tensor, _ in named]
    for (name, _, _), (address, _) in zip(named, storages, strict=True):
        if address and name not in sharing[address]:
            sharing[address].append(name)
    readers = _readers(seen)
    modules = _called_with(seen)
    return [
        LookedTensor(
            name=name,
            form=form_of(tensor),
            made_by=made_by,
            storage_bytes=size,
            offset=int(tensor.storage_offset()) if address else 0,
            requires_grad=tensor.requires_grad,
            shares=tuple(each for each in sharing[address] if each != name),
            read_by=tuple(dict.fromkeys([*modules[id(tensor)], *readers[_key(tensor)]])),
        )
        for (name, tensor, made_by), (address, size) in zip(named, storages, strict=True)
    ]


def _named(seen: Modules, phases: Phases) -> Iterator[tuple[str, torch.Tensor, str]]:
    """Each tensor with its name and what made it."""
    for model, prefix in phases.models.items():
        for name, parameter in model.named_parameters(remove_duplicate=False):
            yield prefix + name, parameter, f"the model, as a parameter of {_owner(model, name)}"
        for name, buffer in model.named_buffers(remove_duplicate=False):
            yield prefix + name, buffer, f"the model, as a buffer of {_owner(model, name)}"
        called = seen.called.get(phases.names[model])
        inputs = called.given if called else []
        for place, given in enumerate(inputs):
            yield _numbered(f"{prefix}(input)", place, inputs), given, "the loop"
    for name, called in seen.called.items():
        for place, returned in enumerate(called.returned):
            own = "" if returned.grad_fn is None else f", with {returned.grad_fn.name()}"
            kind = type(called.module).__name__
            yield _numbered(f"{name}(output)", place, called.returned), returned, f"{name or 'the model'} ({kind}){own}"


def _numbered(name: str, place: int, of: list[torch.Tensor]) -> str:
    return name if len(of) == 1 else f"{name}[{place}]"


def _owner(model: nn.Module, name: str) -> str:
    path = name.rpartition(".")[0]
    return f"{path or 'the model'} ({type(model.get_submodule(path)).__name__})"


def _called_with(seen: Modules) -> dict[int, list[str]]:
    """For each tensor the modules that were called with it."""
    found: dict[int, list[str]] = defaultdict(list)
    for name, called in seen.called.items():
        for given in called.given:
            found[id(given)].append(f"{name or 'the model'} ({type(called.module).__name__})")
    return found


def _readers(seen: Modules) -> dict[Any, list[str]]:
    """For each leaf, and each node of the graph, the operations that take it."""
    found: dict[Any, list[str]] = defaultdict(list)
    for node, where in seen.graph:
        for before, output in node.next_functions:
            if before is not None:
                leaf = getattr(before, "variable", None)
                key = (before, output) if leaf is None else id(leaf)
                found[key].append(node.name() + (f" of {where}" if where else ""))
    return found


def _key(tensor: torch.Tensor) -> Any:
    return id(tensor) if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)
