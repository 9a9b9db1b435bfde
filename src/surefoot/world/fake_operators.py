"""Fake operators: assumptions for values and shapes that a fake step cannot know.

Values: scalars and small integer tensors stay real; `.item()` on anything else returns 1. Every number is assumed to
be finite, so `isfinite` is true, `isnan` is false, and `GradScaler` finds no infinity. Other branches on values raise
an error. Shapes: `nonzero` or a mask selects the share given by the recipe's density, or everything. Sizes: wrong
results of torch's fake kernels are corrected (`kernels.py`). Every assumption is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from surefoot.errors import WorldError
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.fake_results import FAKES, packed, spread_evenly
from surefoot.world.kernels import AnyKernels, Kernels, corrected

aten = torch.ops.aten

SMALL_ELEMENTS = 2**20
"""Integer tensors of at most this many elements stay real in a fake world."""

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class FakeOperators(TorchDispatchMode):
    """A mode above FakeTensorMode: keeps small tensors real, corrects wrong results, assumes unknown values."""

    def __init__(self, assumptions: dict[str, int], kernels: AnyKernels, density: float | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.assumptions, self.kernels, self.density = assumptions, kernels, density
        self._truths = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return _device(args[0])
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]  # like its kernel; torch's fake kernel makes another tensor
        kwargs = kwargs or {}
        tensors = list(tensors_in([args, kwargs]))
        if all(map(is_small, tensors)) if tensors else _makes_small(func, args, kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        try:
            out = FAKES.get(func, func)(*args, **kwargs)
        except DataDependentOutputException as error:
            return self._stand_in(func, tensors[0], error)
        except DynamicOutputShapeException as error:
            return self._selection(func, args, error)
        if func is torch.ops.c10d.allreduce_.default:
            return _answered(*out)
        kernel = self.kernels.measured(func, args, kwargs)
        out = out if kernel is None else corrected(out, kernel)
        truth = self._truth(func, args)
        if truth is not None:
            self._truths[out] = truth
        return out

    def _truth(self, func: Any, args: Any) -> bool | None:
        """Whether a result is true if every number is finite. None if that does not determine it."""
        name = func.overloadpacket.__name__
        if name in ("isnan", "isinf"):
            return False
        if name in ("eq", "ne"):
            with_itself, with_infinity = args[1] is args[0], isinstance(args[1], float) and math.isinf(args[1])
            return (name == "eq") == with_itself if with_itself or with_infinity else None
        if not len(self._truths):
            return None
        known = [self._truths.get(arg) for arg in args if isinstance(arg, torch.Tensor)]
        if not known or None in known:
            return None
        rules = {"all": all, "any": any, "mul": all, "logical_and": all, "bitwise_and": all}
        rules |= {"logical_or": any, "bitwise_or": any}
        if name in ("logical_not", "bitwise_not"):
            return not known[0]
        return rules[name](known) if name in rules else None

    def _selection(self, func: Any, args: Any, error: Exception) -> Any:
        """Selects the share of elements given by the recipe's density, or all. The true number is unknown."""
        share = 1.0 if self.density is None else self.density
        name = func.overloadpacket.__name__
        if name == "_pack_padded_sequence" and not isinstance(args[1], FakeTensor):
            with unset_fake_temporarily():
                shape, batch_sizes = packed(*args)
            return torch.empty(shape, dtype=args[0].dtype), batch_sizes
        if name == "bincount" and len(args) > 2 and args[2] and args[1] is None:
            self._note(f"bincount counted {args[0].numel():,} elements evenly in {args[2]} bins")
            with unset_fake_temporarily():
                return spread_evenly(args[0].numel(), args[2])
        if name == "nonzero":
            chosen, shape = args[0], (args[0].dim(),)
        elif name == "index" and args[1] and args[1][0] is not None and args[1][0].dtype is torch.bool:
            chosen, shape = args[1][0], tuple(args[0].shape[args[1][0].dim() :])
        else:
            raise WorldError(f"the shape of {func}'s result depends on values, and a plan has no values") from error
        count = max(1, round(share * chosen.numel()))
        why = "the recipe's density" if self.density is not None else "the worst case; set the recipe's density"
        self._note(f"{name} chose {share:.1%} of {chosen.numel():,} elements: {why}")
        if name == "nonzero":
            return torch.empty((args[0].dim(), count), dtype=torch.int64).t()
        return torch.empty((count, *shape), dtype=args[0].dtype)

    def _stand_in(self, func: Any, tensor: torch.Tensor, error: Exception) -> float | int:
        """A value that a fake step cannot know. Numbers are assumed finite; branches on other values raise an error."""
        if func is aten._local_scalar_dense.default and tensor in self._truths:
            self._note("all numbers are finite")
            return self._truths[tensor]
        if func is not aten._local_scalar_dense.default or tensor.dtype is torch.bool:
            raise WorldError(
                f"the code reads the values of a tensor ({func}), and a plan has no values; "
                "move this code out of the step, or plan without it"
            ) from error
        self._note(f".item() on a {str(tensor.dtype).removeprefix('torch.')} tensor answered 1")
        return 1.0 if tensor.dtype.is_floating_point else 1

    def _note(self, assumption: str) -> None:
        self.assumptions[assumption] = self.assumptions.get(assumption, 0) + 1


@contextmanager
def rehearsal(tree: Any, density: float | None) -> Iterator[Callable[[Any], Any]]:
    """A context for code on fake tensors, unseen by meters. Yields a function that makes a tree's tensors fake.

    Tensors that are already fake stay the same. Real ones are copied, so that counters do not change. Random generators
    and autocast's copies of weights are left as they were.
    """
    known = next((tensor for tensor in tensors_in(tree) if isinstance(tensor, FakeTensor)), None)
    mode = FakeTensorMode(allow_non_fake_inputs=True) if known is None else known.fake_mode

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if is_small(tensor):
            return tensor.clone()
        return tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)

    eager = torch.compiler.set_stance("force_eager")
    with _disable_current_modes(), torch.random.fork_rng(), eager, mode, FakeOperators({}, Kernels(), density):
        try:
            yield lambda tree: map_tensors(fake, tree)
        finally:
            torch.clear_autocast_cache()


def _device(tensor: torch.Tensor) -> torch.device:
    """The device of a tensor. This is called as often as all operators together."""
    return tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device


def _answered(tensors: list[torch.Tensor], work: Any) -> tuple[list[torch.Tensor], Any]:
    """An all-reduce of fake ranks, with its tensors as the result. DDP needs one; the fake backend gives none."""
    done: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    done.set_result(tensors)
    return tensors, torch._C._distributed_c10d._create_work_from_future(done).boxed()  # type: ignore[attr-defined]


def is_small(tensor: torch.Tensor) -> bool:
    """Is a tensor real, and cheap enough to stay so: a scalar, or a few integers?"""
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
