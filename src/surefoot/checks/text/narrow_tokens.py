"""Finds tokens stored in a dtype too small for the vocabulary."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.text import NarrowTokens, TextFacts
from surefoot.checks.samples.arrays_in_sight import arrays_held_by, arrays_in_sight
from surefoot.checks.samples.loaders import Loaders
from surefoot.events.callers import caller
from surefoot.source.loop_body import name_of_call
from surefoot.source.parsing import parsed
from surefoot.source.row_orders import calls
from surefoot.torch_inside.modes import aside

_LONGEST = 1 << 24
_SPARE = 16
"""A vocabulary may have this many extra tokens, for starts, ends and classes."""
_FILLED = 0.95
"""Ids that wrapped around reach at least this share of the largest that the dtype holds."""
_FEWEST_KINDS = 0.4
"""At least this share of the dtype's numbers must occur, if the dtype is known only from the source."""
_TYPES = {torch.uint8: ("uint8", "ubyte", "B"), torch.uint16: ("uint16", "ushort", "H")}
_MAKING = {
    "array",
    "asarray",
    "fromfile",
    "frombuffer",
    "memmap",
    "astype",
    "tensor",
    "as_tensor",
    "fromiter",
    "to",
    "type",
    "full",
    "zeros",
    "empty",
}
"""Calls that make an array of a dtype and wrap what does not fit."""


class TokenWidths(Observer):
    """Inspects the arrays that tokens come from, in the first forward."""

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self._rows = 0
        self._highest = -1
        self._tokens = torch.empty(0, dtype=torch.int64)
        self._kinds: set[int] = set()
        self._file = ""
        self._arrays: list[tuple[torch.dtype, int]] = []
        """The dtypes of narrow arrays that hold the tokens seen, and the largest number in each."""

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if not self.scene.close or not torch.is_grad_enabled():
            return
        given = [each for each in tensors((args, kwargs)) if readable(each) and each.dim() > 1 and each.numel()]
        tokens = [each for each in given if each.dtype in (torch.int64, torch.int32)]
        rows = max((each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding)), default=0)
        if not tokens or rows <= 256 + _SPARE:
            return
        with aside():
            self._highest = max(self._highest, *(int(each.max()) for each in tokens))
            if len(self._kinds) < _LONGEST:
                self._kinds.update(tokens[0].unique().tolist())
            if not self._rows:
                self._file = caller().rpartition(":")[0]
                self._rows, self._tokens = rows, tokens[0].unique().cpu()
                self._arrays += self._narrow(arrays_in_sight(longest=_LONGEST))
                if self._loaders.latest is not None:
                    self.look_at(self._loaders.latest.loader.dataset)

    def look_at(self, dataset: Any) -> None:
        """Inspects a data set that batches come from."""
        if self._rows:
            with aside():
                self._arrays += self._narrow(arrays_held_by(dataset))

    def _narrow(self, arrays: list[torch.Tensor]) -> Iterator[tuple[torch.dtype, int]]:
        for each in arrays:
            if each.dtype in (torch.uint8, torch.uint16) and each.dim() <= 2 and each.numel():
                values = each.long()
                if bool(torch.isin(self._tokens, values).all()):
                    yield each.dtype, int(values.max())

    def facts(self) -> Iterator[TextFacts]:
        yield TextFacts(narrow_tokens=tuple(self._found()))

    def _found(self) -> Iterator[NarrowTokens]:
        for dtype, largest in self._arrays:
            most = torch.iinfo(dtype).max
            if self._rows > most + 1 + _SPARE and _FILLED * most < largest and self._highest <= most:
                yield NarrowTokens(str(dtype).removeprefix("torch."), most + 1, self._rows)
                return
        for dtype, names in _TYPES.items():
            most = torch.iinfo(dtype).max
            full = _FILLED * most < self._highest <= most and len(self._kinds) > _FEWEST_KINDS * most
            if full and self._rows > most + 1 + _SPARE and not names_of_dtypes(self._file).isdisjoint(names):
                yield NarrowTokens(names[0], most + 1, self._rows, in_source=True)
                return


@cache
def names_of_dtypes(file: str) -> frozenset[str]:
    """The dtypes of arrays that calls in a file make. Image arrays are for other models."""
    tree = parsed(file)
    found = set()
    for call in calls(tree) if tree else ():
        if name_of_call(call) == "byte":
            found.add("uint8")
        elif name_of_call(call) in _MAKING:
            given = [*call.args, *(each.value for each in call.keywords if each.arg in ("dtype", "typecode"))]
            found |= {each.attr for each in given if isinstance(each, ast.Attribute)}
            found |= {each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return frozenset(found)
