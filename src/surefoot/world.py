"""World: where a step runs. Real, fake (any number of ranks, no memory) or tiny."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from surefoot.errors import WorldError
from surefoot.kernels import Kernels, corrected
from surefoot.recipe import Recipe
from surefoot.trees import map_tensors, tensors_in

aten = torch.ops.aten

SMALL_ELEMENTS = 2**20
"""Integer tensors of at most this many elements stay real in a fake world."""

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class World:
    """Real tensors on the machine's own device. Enter it, build in it, take batches in it."""

    ranks = 1

    def __init__(self) -> None:
        self.device = torch.accelerator.current_accelerator() or torch.device("cpu")
        self.assumptions: dict[str, int] = {}
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def fit(self, recipe: Recipe) -> Recipe:
        """The recipe as it runs here."""
        return recipe

    def take(self, batches: Iterator[Any]) -> Any:
        """The next batch, as it exists here. Loading it is no part of the step: no mode sees it."""
        with _disable_current_modes():
            return map_tensors(self._place, next(batches))

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device)


class TinyWorld(World):
    """Real tensors, and steps cut to two micro-batches of a few samples: for looking, not for training."""

    def __init__(self, *, samples: int = 4) -> None:
        super().__init__()
        self.samples = samples

    def fit(self, recipe: Recipe) -> Recipe:
        size = min(self.samples, recipe.micro_batch_size)
        micro_batches = min(2, recipe.micro_batches())
        tokens = size * micro_batches * recipe.tokens_per_sample
        return dataclasses.replace(recipe, micro_batch_size=size, global_batch_tokens=tokens)


class FakeWorld(World):
    """Tensors with a shape and no memory, and `ranks` simulated ranks of which this process is the first.

    Scalars stay real, so that optimizers and GradScaler read true step counts and scales; so do small integer
    tensors, so that code which looks at tokens, positions, lengths and masks takes its usual path.
    """

    def __init__(self, *, ranks: int = 1, kernels: Kernels | None = None, density: float | None = None) -> None:
        super().__init__()
        if ranks < 1:
            raise WorldError(f"a world has at least 1 rank, not {ranks}")
        self.ranks = ranks
        self.device = torch.device("cpu")
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._small = _SmallStaysReal(self.assumptions, kernels or Kernels(), density)

    def __enter__(self) -> Self:
        if self.ranks > 1:
            _start_fake_ranks(self.ranks)
            self._entered.callback(dist.destroy_process_group)
        self._entered.enter_context(self._fake)
        self._entered.enter_context(self._small)
        return self

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a tensor, or a few integers as they are; those that share storage go on sharing it."""
        return tensor if _is_small(tensor) else self._fake.from_tensor(tensor)


class _SmallStaysReal(TorchDispatchMode):
    """Sits on top of FakeTensorMode: what touches only small real tensors runs for real."""

    def __init__(self, assumptions: dict[str, int], kernels: Kernels, density: float | None) -> None:
        super().__init__()
        self.assumptions, self.kernels, self.density = assumptions, kernels, density

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = list(tensors_in([args, kwargs]))
        if all(map(_is_small, tensors)) if tensors else _makes_small(func, args, kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        try:
            out = func(*args, **kwargs)
        except DataDependentOutputException as error:
            return self._stand_in(func, tensors[0], error)
        except DynamicOutputShapeException as error:
            return self._selection(func, args, error)
        kernel = self.kernels.measured(func, args, kwargs)
        return out if kernel is None else corrected(out, kernel)

    def _selection(self, func: Any, args: Any, error: Exception) -> Any:
        """As many elements as the recipe's density says are chosen, or all: how many no fake step can know."""
        share = 1.0 if self.density is None else self.density
        name = func.overloadpacket.__name__
        if name == "_pack_padded_sequence" and not isinstance(args[1], FakeTensor):
            return _packed(*args)
        if name == "nonzero":
            chosen, shape = args[0], (args[0].dim(),)
        elif name == "index" and args[1] and args[1][0] is not None and args[1][0].dtype is torch.bool:
            chosen, shape = args[1][0], tuple(args[0].shape[args[1][0].dim() :])
        else:
            raise WorldError(f"the shape of {func}'s result depends on values, and a plan has none") from error
        count = max(1, round(share * chosen.numel()))
        why = "the recipe's density" if self.density is not None else "the worst case; set the recipe's density"
        note = f"{name} chose {share:.1%} of {chosen.numel():,} elements: {why}"
        self.assumptions[note] = self.assumptions.get(note, 0) + 1
        if name == "nonzero":
            return torch.empty((args[0].dim(), count), dtype=torch.int64).t()
        return torch.empty((count, *shape), dtype=args[0].dtype)

    def _stand_in(self, func: Any, tensor: torch.Tensor, error: Exception) -> float | int:
        """A number in place of a value that no fake step can know; branches on truth are refused."""
        if func is not torch.ops.aten._local_scalar_dense.default or tensor.dtype is torch.bool:
            raise WorldError(
                f"the code asks for the values of a tensor ({func}), and a plan has none; "
                "take the branch outside the step, or plan without it"
            ) from error
        note = f".item() on a {str(tensor.dtype).removeprefix('torch.')} tensor answered 1"
        self.assumptions[note] = self.assumptions.get(note, 0) + 1
        return 1.0 if tensor.dtype.is_floating_point else 1


def _packed(padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What packing gives: the rows within their lengths, and how many sequences reach each time step."""
    with unset_fake_temporarily():
        _, batch_sizes = aten._pack_padded_sequence(torch.zeros(*padded.shape[:2], 1), lengths, batch_first)
        rows = int(lengths.sum())
    return torch.empty((rows, *padded.shape[2:]), dtype=padded.dtype), batch_sizes


def _is_small(tensor: torch.Tensor) -> bool:
    if isinstance(tensor, FakeTensor) or tensor.device.type != "cpu":
        return False
    return tensor.dim() == 0 or (tensor.dtype in _INTEGERS and tensor.numel() <= SMALL_ELEMENTS)


def _makes_small(func: Any, args: Any, kwargs: Any) -> bool:
    """Does a factory make a scalar, or a few integers whose values are known?"""
    if torch.device(kwargs.get("device") or "cpu").type != "cpu":
        return False
    dtype = kwargs.get("dtype")
    if func.overloadpacket is aten.arange:
        integers = dtype in _INTEGERS or (dtype is None and all(isinstance(arg, int) for arg in args))
        return integers and max(abs(arg) for arg in args) <= SMALL_ELEMENTS
    if not args or not isinstance(args[0], list | tuple):
        return False
    known = func.overloadpacket in (aten.zeros, aten.ones, aten.full, aten.empty) and dtype in _INTEGERS
    return len(args[0]) == 0 or (known and math.prod(args[0]) <= SMALL_ELEMENTS)


def _start_fake_ranks(ranks: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise WorldError("a process group is already initialised; a fake world brings its own")
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())


def fake_world(*, ranks: int = 1) -> FakeWorld:
    """`with surefoot.fake_world(ranks=256):` your own loop runs inside and allocates nothing."""
    return FakeWorld(ranks=ranks)
