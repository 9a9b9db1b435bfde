"""Short copies of a model with repeated blocks, whose tensors keep the names of the whole model."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from torch import nn

from surefoot.costs.unroll import Irregular
from surefoot.meters.books import Books
from surefoot.meters.journal import Entry, Journal, Noted, filled
from surefoot.planning.repeated_blocks import Repeats
from surefoot.torch_inside.modules import hooks_of
from surefoot.trees import plain
from surefoot.world.kernels import AnyKernels

FEW = (3, 4, 5)
"""The numbers of blocks of the copies."""


class Copies:
    """A model with all its blocks, which can be copied with fewer.

    Its books stop following it. Later changes are posted to them from a journal.
    """

    def __init__(self, model: nn.Module, repeats: Repeats, booked: Books, kernels: AnyKernels) -> None:
        self.model, self.repeats, self.kernels = model, repeats, kernels
        self._host_apart = booked.host_apart
        self.more = repeats.times - FEW[-1]
        """How many blocks it has beyond those of the longest copy."""
        self.bookings: dict[tuple[str, ...], Any] = {}
        """Of what was built, by the names that journals have for it."""
        self._noted: list[tuple[torch.UntypedStorage, Noted]] = []
        names, unnamed = _storage_names(model), itertools.count()
        for storage, booking in booked.memory.followed():
            name = names.get(id(storage))
            kind = "built" if name is None else "model"
            pattern, numbers = ("{}", (next(unnamed),)) if name is None else repeats.split(name)
            self._noted.append((storage, Noted((kind, pattern), numbers)))
            self.bookings[kind, filled(pattern, numbers)] = booking
        booked.memory.let_go()

    def whole(self) -> tuple[nn.Module, Books, Journal]:
        """The model itself, with books that know its storages, and the journal they write to."""
        return self.model, *self._books(self._noted)

    def short(self, times: int, *, work: bool = False) -> tuple[nn.Module, Books, Journal]:
        """A copy with `times` blocks of each run, with its own books and journal."""
        for parameter in self.model.parameters():
            if hooks_of(parameter):
                raise Irregular("parameters have hooks, which their copies would lack")
        memo: dict[int, Any] = {}
        with self.repeats.shortened(times):
            model = copy.deepcopy(self.model, memo)
        copied: dict[int, torch.UntypedStorage] = {}
        originals = [each for each in memo[id(memo)] if isinstance(each, torch.Tensor)]  # deepcopy keeps them alive
        pairs = (zip(plain(each), plain(memo[id(each)]), strict=True) for each in originals)
        for tensor, other in itertools.chain.from_iterable(pairs):
            storage, twin = tensor.untyped_storage(), other.untyped_storage()
            if copied.setdefault(id(storage), twin) is not twin or storage.nbytes() != twin.nbytes():
                raise Irregular("tensors of the model share memory, which their copies would not")
        known = [(copied[id(storage)], noted) for storage, noted in self._noted if id(storage) in copied]
        return model, *self._books(known, work=work)

    def entry(self, kind: str, name: str, *how: Any) -> Entry:
        """A journal entry about a part of the model."""
        pattern, numbers = self.repeats.split(name)
        return Entry((kind, pattern, *how), (), numbers)

    def _books(self, known: list[tuple[torch.UntypedStorage, Noted]], *, work: bool = False) -> tuple[Books, Journal]:
        journal = Journal(self.repeats.split)
        books = Books(kernels=self.kernels, journal=journal, work=work, host_apart=self._host_apart)
        for storage, noted in known:
            books.memory.follow(storage, noted)
        return books, journal


def _storage_names(model: nn.Module) -> dict[int, str]:
    """The first name of every parameter and buffer, by the identity of its storage."""
    names: dict[int, str] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        for part in plain(tensor):
            names.setdefault(id(part.untyped_storage()), name)
    return names
