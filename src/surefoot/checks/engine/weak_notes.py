"""Notes on tensors by identity, which keep no tensor alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import torch

Note = TypeVar("Note")


class WeakNotes(Generic[Note]):
    """Maps tensors to notes. A new tensor with the id of a deleted one has no note."""

    def __init__(self) -> None:
        self._notes: dict[int, tuple[weakref.ref[torch.Tensor], Note]] = {}

    def __len__(self) -> int:
        return len(self._notes)

    def __contains__(self, tensor: Any) -> bool:
        known = self._notes.get(id(tensor))
        return known is not None and known[0]() is tensor

    def __setitem__(self, tensor: torch.Tensor, note: Note) -> None:
        self._notes[id(tensor)] = weakref.ref(tensor), note

    def get(self, tensor: Any) -> Note | None:
        return self._notes[id(tensor)][1] if tensor in self else None

    def forget(self, tensor: torch.Tensor) -> None:
        self._notes.pop(id(tensor), None)

    def put(self, tensors: Iterable[torch.Tensor], note: Note) -> None:
        for each in tensors:
            self[each] = note

    def notes(self) -> list[Note]:
        """All notes, including those of deleted tensors."""
        return [note for _, note in self._notes.values()]
