"""Others: training batches whose samples have the targets of other samples, and reads with frozen random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from surefoot.debug.probe.changes import FEWEST, permutation, with_targets_of
from surefoot.debug.probe.leaves import Leaf, altered, leaves, rows_of
from surefoot.debug.probe.order import Order
from surefoot.randomness import kept, seed_all


class Follows(Protocol):
    """What this needs to know of the loop."""

    changed: int

    def trains_on(self, dataset: Any) -> bool:
        """Is this a data set that the script trains on?"""
        ...


class Others:
    """Gives samples the targets of others: by their index in the data set, else by the values of their inputs."""

    def __init__(self, order: Order, loop: Follows) -> None:
        self._order, self._loop = order, loop
        kind, _, amount = order.train.partition(" ")
        self._fixed, self._shift = kind == "fixed", int(amount) if kind == "shift" else 0
        self._frozen = int(amount) if kind == "frozen" else None
        self._places: dict[int, torch.Tensor] = {}
        self._known: dict[Any, torch.Tensor] = {}
        """What each sample got in the place of its own target, by its input."""
        self._keys: list[int] = []
        self._operation = 0

    # --------------------------------------------------------------------------------------- data sets

    def fetching(self, plain: Any) -> Any:
        """Reads of a loader, by the indices of samples."""

        def fetch(fetcher: Any, index: Any) -> Any:
            if not isinstance(index, Sequence) or not self._loop.trains_on(fetcher.dataset):
                return plain(fetcher, index)
            if self._frozen is not None:
                return fetcher.collate_fn([_frozen(fetcher.dataset, each, self._frozen) for each in index])
            if not (self._shift or (self._fixed and self._order.roles.entry == "loader")):
                return plain(fetcher, index)
            own = plain(fetcher, index)
            with kept():
                other = plain(fetcher, [self._other(fetcher.dataset, each) for each in index])
            made, changed = with_targets_of(own, other, self._order.roles)
            self._loop.changed += changed
            return made if changed else self._by_values(own)

        return fetch

    def _other(self, dataset: Any, index: int) -> int:
        count = len(dataset)
        if self._shift:
            return (index + self._shift) % count
        if count not in self._places:
            self._places[count] = permutation(count, 0)
        return int(self._places[count][index])

    # --------------------------------------------------------------------------------------- values

    def _by_values(self, batch: Any) -> Any:
        """Of a batch whose targets have the forms of their inputs: shuffled within it, and each keeps what it got."""
        targets = self._order.roles.named("loader", "target")
        self._keys = _keys(batch, self._order.roles.named("loader", "input", "both"))
        return altered(batch, lambda path, leaf: self._kept(path, leaf) if path in targets else leaf)

    def in_call(self, batch: dict[Any, Any]) -> dict[Any, Any]:
        """The arguments of a model, with the targets among them given to other samples."""
        roles = self._order.roles
        self._keys = _keys(batch, roles.named("call", "input", "both"))
        targets = roles.named("call", "target")
        made: dict[Any, Any] = altered(batch, lambda path, leaf: self._kept(path, leaf) if path in targets else leaf)
        return made

    def called(self, batch: Any) -> None:
        """Notes the samples that a model is called with."""
        self._keys = _keys(batch, [path for path, leaf in leaves(batch).items() if isinstance(leaf, torch.Tensor)])

    def swapped(self, tensor: torch.Tensor, rows: int) -> torch.Tensor:
        """A constant that meets outputs in training: each sample has that of another one, always the same."""
        samples = len(self._keys)
        if not torch.is_grad_enabled() or samples < FEWEST or rows % samples:
            return tensor
        self._operation += 1
        blocks = tensor.reshape(samples, rows // samples, *tensor.shape[1:])
        return self._kept(str(self._operation), blocks).reshape(tensor.shape)

    def update_ends(self) -> None:
        """The operations of an update are counted from its beginning."""
        self._operation = 0

    def _kept(self, path: str, leaf: Leaf) -> Leaf:
        if not isinstance(leaf, torch.Tensor) or rows_of(leaf) != len(self._keys) or len(self._keys) < FEWEST:
            return leaf
        mixed = leaf[permutation(len(leaf), len(self._known))]
        form = (path, leaf.shape[1:])
        rows = [self._known.setdefault((*form, key), row) for key, row in zip(self._keys, mixed, strict=True)]
        made = torch.stack(rows)
        self._loop.changed += not torch.equal(made, leaf)
        return made


def _keys(batch: Any, paths: Sequence[str]) -> list[int]:
    """A number for each sample of a batch, by the values of its first input."""
    found = leaves(batch)
    inputs = [found[path] for path in paths if path in found and rows_of(found[path]) >= FEWEST]
    if not inputs or not isinstance(inputs[0], torch.Tensor):
        return []
    return [hash(row.detach().cpu().numpy().tobytes()) for row in inputs[0]]


def _frozen(dataset: Any, index: Any, seed: int) -> Any:
    """A sample, read with the same random numbers as every other one."""
    with kept():
        seed_all(seed)
        return dataset[index]
