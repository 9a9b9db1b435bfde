"""A set of tensors that does not keep alive what a loop creates anew in each step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, MutableSet

import torch


class WeakTensorSet(MutableSet[torch.Tensor]):
    """A set of tensors that does not keep them alive, such as the points at which a gradient penalty is taken."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._held = {id(each): weakref.ref(each) for each in tensors}

    def __contains__(self, tensor: object) -> bool:
        found = self._held.get(id(tensor))
        return found is not None and found() is tensor

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (each for ref in list(self._held.values()) if (each := ref()) is not None)

    def __len__(self) -> int:
        return sum(ref() is not None for ref in self._held.values())

    def add(self, tensor: torch.Tensor) -> None:
        self._held[id(tensor)] = weakref.ref(tensor)

    def discard(self, tensor: torch.Tensor) -> None:
        if tensor in self:
            del self._held[id(tensor)]
