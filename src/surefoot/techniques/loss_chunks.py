"""Loss chunks: the head and the cross-entropy take one part of the positions after the other, so that all logits never
exist at once.

The logits of a language model are often its largest tensor, and its loss makes two or three of that size. With
`loss_chunks=8`, the head returns `Logits`, which stand for them: shape, format and slices of positions work as usual.
`F.cross_entropy` computes the logits of one eighth of the positions, adds up their loss and drops them; backward
computes them again. The loss and the gradients differ from those of all logits at once by the order of sums alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.recompute import blocks_of


@dataclass(frozen=True)
class Chunking:
    """The head whose logits are made in chunks."""

    chunks: int
    name: str

    def explain(self) -> list[str]:
        """One sentence."""
        return [
            f"loss_chunks={self.chunks}: the logits of {self.name} are made in {self.chunks} parts, and once more in "
            "backward"
        ]


class Logits:
    """Logits that are not computed yet: what the head was given, and what happens to its result."""

    def __init__(self, hidden: Tensor, head: Callable[[Tensor], Tensor], width: int, chunks: int, dtype: torch.dtype):
        self.hidden, self.head, self.width, self.chunks, self.dtype = hidden, head, width, chunks, dtype
        self.shape = torch.Size((*hidden.shape[:-1], width))
        self.device, self.requires_grad = hidden.device, hidden.requires_grad
        self.ndim = hidden.dim()

    def dim(self) -> int:
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def float(self) -> Logits:
        return self.to(torch.float32)

    def to(self, *args: Any) -> Logits:
        """The same in another format. Logits stay where they are."""
        if len(args) != 1 or not isinstance(args[0], torch.dtype | torch.device | str):
            raise _cannot("to")
        return self._of(self.hidden, args[0] if isinstance(args[0], torch.dtype) else self.dtype)

    def contiguous(self) -> Logits:
        return self

    def flatten(self, start: int = 0, end: int = -1) -> Logits:
        if (start, end % self.ndim) != (0, self.ndim - 2):
            raise _cannot(f"flatten({start}, {end})")
        return self._of(self.hidden.flatten(0, -2))

    def view(self, *shape: Any) -> Logits:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        if len(sizes) != 2 or sizes[-1] not in (self.width, -1) or sizes[0] not in (-1, self.shape[:-1].numel()):
            raise _cannot(f"view{tuple(sizes)}")
        return self.flatten(0, -2) if self.ndim > 2 else self

    reshape = view

    def __getitem__(self, index: Any) -> Logits:
        parts = index if isinstance(index, tuple) else (index,)
        reaches_width = Ellipsis in [each for each in parts if each is Ellipsis] or len(parts) == self.ndim
        if reaches_width and parts[-1] not in (Ellipsis, slice(None)):
            raise _cannot("indexing of classes")
        return self._of(self.hidden[index])

    def __getattr__(self, name: str) -> Any:
        raise _cannot(name) if not name.startswith("__") else AttributeError(name)

    def _of(self, hidden: Tensor, dtype: torch.dtype | None = None) -> Logits:
        return Logits(hidden, self.head, self.width, self.chunks, dtype or self.dtype)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.cross_entropy:
            return cross_entropy(*args, **(kwargs or {}))
        raise _cannot(getattr(func, "__name__", str(func)))


def _cannot(what: str) -> RecipeError:
    return RecipeError(
        f"loss_chunks: the logits go through {what} before F.cross_entropy, which needs all of them; "
        "remove loss_chunks, or give the result of the head to F.cross_entropy"
    )


def cross_entropy(
    logits: Logits,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`F.cross_entropy` of logits that are made chunk by chunk."""
    if weight is not None or size_average is not None or reduce is not None or logits.ndim != 2 or target.dim() != 1:
        raise _cannot("F.cross_entropy with weights of classes, or of more than two dimensions,")
    plain: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    part = functools.partial(_part, logits, reduction="none" if reduction == "none" else "sum", **plain)
    pairs = zip(logits.hidden.chunk(logits.chunks), target.chunk(logits.chunks), strict=True)
    losses = [checkpoint(part, hidden, wanted, use_reentrant=False) for hidden, wanted in pairs]
    if reduction == "none":
        return torch.cat(losses)
    total = functools.reduce(torch.add, losses)
    return total if reduction == "sum" else total / (target != ignore_index).sum()


def _part(logits: Logits, hidden: Tensor, target: Tensor, **how: Any) -> Tensor:
    made = logits.head(hidden)
    return F.cross_entropy(made if made.dtype == logits.dtype else made.to(logits.dtype), target, **how)


def apply(model: nn.Module, recipe: Recipe, *, returned: torch.dtype | None = None) -> Chunking | None:
    """Makes the head of the model return `Logits`. `returned` is the format in which a sharded model returns them."""
    if recipe.loss_chunks == 1:
        return None
    if recipe.tp > 1:
        raise RecipeError(f"loss_chunks={recipe.loss_chunks} does not work with tp={recipe.tp}; use loss_parallel=true")
    name, head = head_of(model)
    head.forward = _standing_in(head, recipe.loss_chunks, returned)  # type: ignore[assignment, method-assign]
    return Chunking(recipe.loss_chunks, name)


def head_of(model: nn.Module) -> tuple[str, nn.Linear]:
    """The linear layer outside all blocks with the most results: the last of those that have as many."""
    inside = tuple(f"{name}." for name, _ in blocks_of(model))
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith(inside)
    ]
    if not found:
        raise RecipeError(
            f"loss_chunks needs a head, an nn.Linear outside the blocks, and {type(model).__name__} has none"
        )
    most = max(module.out_features for _, module in found)
    return [each for each in found if each[1].out_features == most][-1]


def _standing_in(head: nn.Linear, chunks: int, returned: torch.dtype | None) -> Callable[[Tensor], Any]:
    """The forward of a head: `Logits` when the model calls it, numbers when `Logits` do."""
    whole, making = head.forward, [False]

    def make(hidden: Tensor) -> Tensor:
        before, making[0] = making[0], True
        try:
            made: Tensor = head(hidden)
            return made
        finally:
            making[0] = before

    def forward(hidden: Tensor) -> Any:
        if making[0]:
            return whole(hidden)
        return Logits(hidden, make, head.out_features, chunks, returned or _format(hidden, head))

    return torch.compiler.disable(forward)


def _format(hidden: Tensor, head: nn.Linear) -> torch.dtype:
    """The format of the head's result."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else head.weight.dtype
