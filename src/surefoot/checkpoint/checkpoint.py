"""Checkpoint: one saved state, verified and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from surefoot.checkpoint.manifest import Manifest, damage, read_manifest
from surefoot.checkpoint.names import is_name, numbers_of
from surefoot.checkpoint.outline import Place, Saved, from_json, leaves, map_leaves, where
from surefoot.checkpoint.ranks import Ranks
from surefoot.checkpoint.reader import METADATA, read_tensors
from surefoot.errors import CheckpointError
from surefoot.plain_files import read_plain

STATE = "state.json"


class Checkpoint:
    """A folder `step-000000123`, or `step-000000123-2` if that step was saved again."""

    def __init__(self, path: Path, ranks: Ranks | None = None) -> None:
        if not is_name(path.name):
            raise CheckpointError(f"{path} is not the name of a checkpoint, for example step-000000123")
        self.step, self.take = numbers_of(path.name)
        self.path, self._ranks, self._verified = path, ranks or Ranks(), False

    def verify(self) -> None:
        """Reads every file. Raises a `CheckpointError` that names a damaged one. Each rank reads its share."""
        size = self._ranks.size
        found = self._ranks.exchange(self._damage, lambda all_found: [[each for each in all_found if each]] * size)
        if found:
            raise CheckpointError(found[0])
        self._verified = True

    def outline(self) -> Any:
        """The saved state with a `Saved` in place of every tensor: its name, dtype, shape and device."""
        try:
            return from_json(read_plain(self.path / STATE))
        except Exception as error:  # forged JSON can fail in any way
            raise CheckpointError(f"{STATE} cannot be read: {error}") from error

    def load(self, into: Any = None) -> Any:
        """The saved state, verified. Tensors in `into` are filled in place; all others are allocated.

        `into` has the structure of the state, or of a part of it. Its tensors must have the shape and dtype
        of the saved ones, but may be sharded differently. A tensor that the checkpoint lacks is an error.
        """
        if not self._verified:
            self.verify()
        outline = self.outline()
        saved = {place: leaf for place, leaf in leaves(outline) if isinstance(leaf, Saved)}
        given = {place: leaf for place, leaf in leaves(into) if isinstance(leaf, torch.Tensor)}
        _refuse_mismatches(given, saved)
        tensors = {saved[place].name: tensor.detach() for place, tensor in reversed(given.items())}
        for leaf in saved.values():
            if leaf.name not in tensors:
                tensors[leaf.name] = allocated(leaf)
        read_tensors(self.path, self._manifest().files, tensors)
        for place, tensor in given.items():  # a tensor saved under two names may be two tensors here
            if not _same(tensor, tensors[saved[place].name]):
                tensor.detach().copy_(tensors[saved[place].name])
        return map_leaves(lambda place, leaf: given.get(place, tensors[leaf.name]) if place in saved else leaf, outline)

    def read(self, tensors: dict[str, torch.Tensor]) -> None:
        """Fills tensors with the saved ones of the same name, verified. Names are those of the outline."""
        if not self._verified:
            self.verify()
        read_tensors(self.path, self._manifest().files, tensors)

    def _damage(self) -> str | None:
        """Describes the damage in this rank's share of the files, or None."""
        if self.path.is_symlink():
            return f"{self.path.name} is a link, not a folder"
        files = self._manifest().files
        if not {STATE, METADATA} <= files.keys():
            return f"MANIFEST does not name {STATE} and {METADATA}"
        mine = sorted(files.items())[self._ranks.rank :: self._ranks.size]
        return next(filter(None, (damage(self.path, name, expected) for name, expected in mine)), None)

    def _manifest(self) -> Manifest:
        manifest = read_manifest(self.path)
        if manifest.step != self.step:
            raise CheckpointError(f"MANIFEST is of step {manifest.step}, not of step {self.step}")
        return manifest

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"


def _refuse_mismatches(given: dict[Place, torch.Tensor], saved: dict[Place, Saved]) -> None:
    for place, tensor in given.items():
        if place not in saved:
            raise CheckpointError(f"{where(place)} is not in the checkpoint")
        here, there = (tensor.dtype, tuple(tensor.shape)), (saved[place].dtype, saved[place].shape)
        if here != there:
            raise CheckpointError(f"{where(place)} is {_form(*here)} here and {_form(*there)} in the checkpoint")


def allocated(leaf: Saved) -> torch.Tensor:
    """Memory for a saved tensor."""
    try:
        return leaf.empty()
    except Exception as error:
        raise CheckpointError(f"not enough memory for {leaf.name}: {error}") from error


def _form(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or (type(one) is type(other) is torch.Tensor and one.data_ptr() == other.data_ptr())
