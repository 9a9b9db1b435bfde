"""Fake operators: assumptions for values and shapes that a fake step cannot know.

Values: scalars and small integer tensors stay real, and other small tensors that depend on nothing fake have a value
beside them (`known_values.py`). `.item()` on anything else returns 1, and `.numpy()` returns ones. Branches
(`truths.py`): every number is assumed to be finite, so `isfinite` is true, `isnan` is false, and `GradScaler` finds no
infinity; a single number is compared as 1. Other branches on values raise an error. Loops that end on values end at
their bound (`value_loops.py`). Shapes: `nonzero` or a mask selects the share given by the recipe's density, or
everything. Sizes: wrong results of torch's fake kernels are corrected (`kernels.py`). Every assumption is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from surefoot.errors import WorldError
from surefoot.torch_inside.collectives import finished
from surefoot.torch_inside.fake_mode import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from surefoot.torch_inside.modes import TorchDispatchMode, innermost_mode, without_modes
from surefoot.torch_inside.operators import private, schema_of, waits
from surefoot.torch_inside.patches import patched
from surefoot.torch_inside.sparse import is_sparse
from surefoot.torch_inside.storages import identity_of
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.fake_results import FAKES, packed, spread_evenly
from surefoot.world.kernels import MASKS, SELECTIONS, AnyKernels, Kernels, corrected
from surefoot.world.known_values import DRAWN, KNOWN_ELEMENTS, READ, REFUSALS, KnownValues, to_extreme, traits_of
from surefoot.world.sparse import SparseCall
from surefoot.world.truths import FINITE, ONE, assumed_of, truth_of
from surefoot.world.user_line import where
from surefoot.world.value_loops import MOST_ROUNDS, Reading, reading

aten = torch.ops.aten

SMALL_ELEMENTS = 2**20
"""Integer tensors of at most this many elements stay real in a fake world."""

MASKED = -1e4
"""What is filled with less than this is added to scores, to hide them."""

_OTHERS = (0, 2**31, -(2**31))
"""Numbers that are answered in place of 1, one after the other, in a loop that does not end with 1."""
_COUNT = "_surefoot_count"
_COUNTS = {aten.sum.default, aten.sum.dim_IntList, aten.count_nonzero.default, aten.count_nonzero.dim_IntList}
_COPIES = {private("_to_copy").default, aten.clone.default}
_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_BY_VALUES = {aten.linalg_matrix_exp.default}
"""Operators whose kernels choose how they compute, and so their memory, by the values of their operands."""
MOST_EXTREME = 20_000
"""Operators after which draws are no longer extreme."""
_BY_LENGTHS = {"_pack_padded_sequence", "_ctc_loss"}
"""Operators whose results are as large as the lengths say that they are given."""


class EndlessLoop(WorldError):
    """A loop that no answer to the values it reads has ended."""


class FakeOperators(TorchDispatchMode):
    """A mode above FakeTensorMode: keeps small tensors real, corrects wrong results, assumes unknown values."""

    def __init__(self, assumptions: dict[str, int], kernels: AnyKernels, density: float | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.assumptions, self.kernels, self.density = assumptions, kernels, density
        self.guessed = ""
        """The line of code that last read an integer that is not known, with the words before it."""
        self.guesses = 0
        """How often code was answered that chooses by a value which is not known."""
        self.reads: dict[str, list[tuple[str, Any]]] = {}
        """Where code read a random number or values of the batch, and what it read, by `DRAWN` and `READ`."""
        self.calls = 0
        """How many operators have run."""
        self.unbounded = False
        """Whether a small draw has no bounds, so that it has no extreme."""
        self.extreme = ""
        """`low` or `high`: what small draws between two bounds are answered, in place of a number between them."""
        self.extreme_since = 0
        """The number of operators that had run when draws began to be extreme."""
        self.hears: Callable[[Any, Any], None] | None = None
        """Called with every operator on real tensors, and its arguments."""
        self._given = WeakTensorKeyDictionary()
        """Small real tensors of a batch, or drawn, and those made of them: `READ` or `DRAWN`."""
        self._truths = WeakTensorKeyDictionary()
        """What is assumed of bool tensors with one element."""
        self._masks = WeakTensorKeyDictionary()
        """Small real tensors of floats that were made of nothing but numbers."""
        self.values = KnownValues()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return _device(args[0])
        if waits(func):
            return args[0]  # like its kernel; torch's fake kernel makes another tensor
        if func is private("_nested_tensor_from_mask_left_aligned").default:
            self._note(
                "nn.TransformerEncoder makes no nested tensors in evaluation; with them its memory is not validated"
            )
            return False
        kwargs = kwargs or {}
        self.calls += 1
        tensors = list(tensors_in([args, kwargs]))
        if all(map(self._is_known, tensors)) if tensors else _makes_small(func, args, kwargs):
            with unset_fake_temporarily():
                out = self._known(func, tensors, func(*args, **kwargs))
            draws = torch.Tag.nondeterministic_seeded in func.tags
            if self.hears is not None:
                self.hears(func, args)
            if draws and self.extreme and self._is_early():
                self.unbounded |= not to_extreme(func, args, kwargs, out, self.extreme)
            self._note_given(func, tensors, out, draws=draws)
            return map_tensors(
                lambda made: self._beside(made, draws and all(made is not each for each in tensors)), out
            )
        for known in [] if self._is_given(func, tensors) else self.values.read(func, tensors, args, kwargs):
            self._note(*self._read_note(tensors))
            self._read(self.values.origin(tensors), known)
            return known
        self._forget_written(func, args)
        self.values.written(func, tensors, args, kwargs)
        if is_sparse(func, tensors, kwargs):
            return self._sparse(func, tensors, args, kwargs)
        try:
            out = FAKES.get(func, func)(*args, **kwargs)
        except DataDependentOutputException as error:
            return self._stand_in(func, tensors, error)
        except DynamicOutputShapeException as error:
            return self._selection(func, args, error)
        except (UnsupportedOperatorException, NotImplementedError) as error:
            raise _unsupported(func) from error
        except RuntimeError as error:
            if "no fake impl" not in str(error):
                raise
            raise _unsupported(func) from error
        if func is torch.ops.c10d.allreduce_.default:
            return _answered(*out)
        if func in _BY_VALUES:
            self._note(f"memory inside {func.overloadpacket.__name__} depends on values and is not validated")
        kernel = self.kernels.measured(func, args, kwargs)
        out = out if kernel is None else corrected(out, kernel)
        self.values.follow(func, tensors, args, kwargs, out, extreme=self.extreme if self._is_early() else "")
        self._count(func, tensors, out)
        truth = truth_of(func, args, out, self._truths, self._number)
        if truth is not None:
            self._truths[out] = truth
        return out

    def _sparse(self, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
        """The result of a call on sparse tensors."""
        name, call = func.overloadpacket.__name__, SparseCall(self.values, self.kernels)
        try:
            out = call.run(innermost_mode(), func, args, kwargs)
        except (WorldError, *REFUSALS) as error:
            raise WorldError(
                f"the memory of the sparse operator {func}{where()} is not known: {error}; plan a smaller "
                "case, or without it"
            ) from error
        if call.guessed:
            self._note(f"the indices of a sparse tensor were spread evenly ({name}), which is not validated")
        if call.merged:
            self._note("equal indices of a sparse tensor were merged as in one batch, and not validated for others")
        if call.grew:
            self._note("a sparse tensor that is kept grew in a step: how much it grows in later ones is not validated")
        if not isinstance(self.kernels, Kernels):
            self._note("sparse kernels of a GPU are taken to allocate what the CPU's do, which is not validated")
        return out

    def _is_early(self) -> bool:
        """Whether few operators have run since draws are extreme. Code may draw until a number suits it."""
        return self.calls - self.extreme_since < MOST_EXTREME

    def give(self, tensor: torch.Tensor) -> None:
        """A small real tensor comes from the batch."""
        self._given[tensor] = READ

    def given(self, tensors: list[torch.Tensor]) -> str:
        """Whether one of some small real tensors depends on the batch or on a draw: `READ` or `DRAWN`."""
        if not len(self._given):
            return ""
        found = {self._given[each] for each in tensors if each in self._given}
        return DRAWN if DRAWN in found else READ if READ in found else ""

    def _note_given(self, func: Any, tensors: list[torch.Tensor], out: Any, *, draws: bool) -> None:
        """Remembers what depends on the batch or on a draw, and where code read such values."""
        of = DRAWN if draws else self.given(tensors)
        if not of:
            return
        if traits_of(func).reads or func.overloadpacket.__name__ in _BY_LENGTHS:
            self._read(of, out)
        for each in tensors_in(out):
            if is_small(each):
                self._given[each] = of

    def _read(self, of: str, out: Any) -> None:
        """Code reads values that differ from step to step: numbers, or tensors whose shapes depend on them.

        What torch reads without being called from a step, such as the seed of a loader, chooses nothing in one.
        """
        if of and (line := where()):
            read = [tuple(each.shape) for each in tensors_in(out)] or repr(out)
            self.reads.setdefault(of, []).append((line, read))

    def _is_known(self, tensor: torch.Tensor) -> bool:
        if is_small(tensor):
            return not self.values.is_spoiled(tensor)
        return len(self._masks) > 0 and not tensor.requires_grad and tensor in self._masks

    def _beside(self, out: torch.Tensor, drawn: bool) -> torch.Tensor:
        """A few floats that were made of integers, or drawn, as a fake with a value: writes to it can be followed."""
        if not (drawn or (out.dim() and out.is_floating_point())) or out.numel() > KNOWN_ELEMENTS or out in self._masks:
            return out
        return self.values.faked(out, DRAWN if drawn else "")

    def _number(self, tensor: torch.Tensor) -> float | None:
        """The only element of a tensor, if it is known."""
        if is_small(tensor) and tensor.numel() == 1 and not self.values.is_spoiled(tensor):
            return _read(tensor)
        value = self.values.of(tensor)
        return None if value is None or value.numel() != 1 else _read(value)

    def _read_note(self, tensors: list[torch.Tensor]) -> list[str]:
        """What to say of values that were read and that differ from step to step."""
        of = self.values.origin(tensors)
        return [f"the code{where()} read {of}: a step with another one is not validated"] if of else []

    def _known(self, func: Any, tensors: list[torch.Tensor], out: Any) -> Any:
        """A result that was made of known values. A mask, and what is made of one, is remembered and stays real."""
        masked = not tensors or (len(self._masks) > 0 and any(each in self._masks for each in tensors))
        if masked and torch.Tag.nondeterministic_seeded not in func.tags:
            for each in tensors_in(out):
                if each.dtype.is_floating_point and each.dim() and each.numel() <= SMALL_ELEMENTS:
                    self._masks[each] = True
        return out

    def _forget_written(self, func: Any, args: Any) -> None:
        """Forgets masks, and all views of them, to which an operator writes unknown values."""
        if not len(self._masks) or not schema_of(func).is_mutable:
            return
        written = {_storage(each) for each in tensors_in(args) if each in self._masks}
        for mask in [each for each in self._masks if _storage(each) in written] if written else ():
            del self._masks[mask]

    def _selection(self, func: Any, args: Any, error: Exception) -> Any:
        """Selects what a known mask chooses; if it is unknown, the share of the recipe's density, or everything."""
        name = func.overloadpacket.__name__
        if name == "_pack_padded_sequence" and not isinstance(args[1], FakeTensor):
            with unset_fake_temporarily():
                shape, batch_sizes = packed(*args)
            self._read(self.given([args[1]]), shape)
            return torch.empty(shape, dtype=args[0].dtype), batch_sizes
        if name == "_ctc_loss":
            return self._ctc_loss(*args[:4])
        if name == "bincount" and len(args) > 2 and args[2] and args[1] is None:
            self._note(f"bincount counted {args[0].numel():,} elements evenly in {args[2]} bins")
            with unset_fake_temporarily():
                return spread_evenly(args[0].numel(), args[2])
        if name == "nonzero":
            return torch.empty((args[0].dim(), self._chosen(name, args[0])), dtype=torch.int64).t()
        if name == "masked_select":
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
            return torch.empty(self._chosen(name, args[1], math.prod(shape)), dtype=args[0].dtype)
        if name == "index" and any(each is not None and each.dtype in MASKS for each in args[1]):
            return func(args[0], [part for each in args[1] for part in self._places(each)])
        fix = "set its minlength" if name == "bincount" else "move it out of the step, or plan without it"
        raise WorldError(
            f"the shape of the result of {func}{where()} depends on values, and a plan has no values; {fix}"
        ) from error

    def _is_given(self, func: Any, tensors: list[torch.Tensor]) -> bool:
        """Whether the recipe's density says what an operator selects: the recipe knows more than one batch."""
        return self.density is not None and func in SELECTIONS and bool(self.values.origin(tensors))

    def _places(self, index: torch.Tensor | None) -> list[torch.Tensor | None]:
        """A mask as the numbers of the places it chooses, one tensor for each of its dimensions, as kernels do it."""
        if index is None or index.dtype not in MASKS:
            return [index]
        count = self._chosen("index", index)
        return [torch.empty(count, dtype=torch.int64) for _ in range(index.dim())]

    def _chosen(self, name: str, mask: torch.Tensor, elements: int | None = None) -> int:
        """How many of some elements a mask chooses: known, if it is real."""
        elements = mask.numel() if elements is None else elements
        value = mask if is_small(mask) and not self.values.is_spoiled(mask) else self.values.of(mask)
        if value is not None and not (self.density is not None and self.values.origin([mask])):
            self._note(*self._read_note([mask]))
            with unset_fake_temporarily():
                count = int(value.count_nonzero()) * elements // max(1, mask.numel())
            self._read(self.given([mask]) or self.values.origin([mask]), count)
            return count
        share = 1.0 if self.density is None else self.density
        why = "the recipe's density" if self.density is not None else "the worst case; set the recipe's density"
        self._note(f"{name} chose {share:.1%} of {elements:,} elements, which is not validated: {why}")
        return max(1, round(share * elements))

    def _ctc_loss(self, log_probs: torch.Tensor, targets: torch.Tensor, _: Any, lengths: torch.Tensor) -> Any:
        """The losses, and the table that backward needs: its width follows from the longest target."""
        longest = targets.shape[-1]
        if is_small(lengths):
            with unset_fake_temporarily():
                longest = int(lengths.max())
            self._read(self.given([lengths]), longest)
        else:
            self._note(f"the longest target of ctc_loss has {longest} elements")
        times, samples = (log_probs.shape[0], log_probs.shape[1]) if log_probs.dim() == 3 else (len(log_probs), 1)
        return log_probs.new_empty(samples), log_probs.new_empty(samples, times, 2 * longest + 1)

    def _count(self, func: Any, tensors: list[torch.Tensor], out: Any) -> None:
        """Remembers how many elements of an unknown mask are taken to be chosen, where code counts them."""
        if not tensors or not isinstance(tensors[0], FakeTensor):
            return
        source, made = tensors[0], list(tensors_in(out))
        if func in _COUNTS and source.dtype is torch.bool and made[0].numel():
            share = 1.0 if self.density is None else self.density
            vars(made[0])[_COUNT] = max(1, round(share * source.numel() / made[0].numel()))
        elif (count := vars(source).get(_COUNT)) is not None and (func.is_view or func in _COPIES):
            for each in made:
                vars(each)[_COUNT] = count

    def _stand_in(self, func: Any, tensors: list[torch.Tensor], error: Exception) -> float | int:
        """A value that a fake step cannot know: an assumed truth, or 1. Branches on other values raise an error."""
        tensor = tensors[0]
        truths = [truth for each in tensors if (truth := assumed_of(each, self._truths, self._number)) is not None]
        if func in (private("_local_scalar_dense").default, aten.equal.default) and len(truths) == len(tensors):
            self._note(*(truth.why for truth in truths if truth.why))
            answer = truths[0].value if len(truths) == 1 else truths[0].value == truths[1].value
            whys = {truth.why for truth in truths} - {"", FINITE}
            return self._steered(answer, reading(), chooses=bool(whys - {ONE})) if whys else answer
        if func is not private("_local_scalar_dense").default or tensor.dtype is torch.bool:
            raise WorldError(
                f"the code{where()} reads the values of a tensor ({func}), and a plan has no values; "
                "move this code out of the step, or plan without it"
            ) from error
        count = vars(tensor).get(_COUNT) if isinstance(tensor, FakeTensor) else None
        if count is not None:
            self.guessed = f"the code{where()} reads how many elements a mask chooses (taken as {count:,})"
            self._note(f"a count of an unknown mask{where()} answered {count:,}, which is not validated")
            return float(count) if tensor.dtype.is_floating_point else count
        if not tensor.dtype.is_floating_point:
            self.guessed = f"the code{where()} reads an integer"
        self._note(f".item() on a {str(tensor.dtype).removeprefix('torch.')} tensor answered 1")
        return self._steered(1.0 if tensor.dtype.is_floating_point else 1, reading())

    def _steered(self, answer: float | int, at: Reading, *, chooses: bool = False) -> float | int:
        """The answer to a reading of an unknown value. Loops that it may end go on, up to a bound.

        A truth about many values `chooses`, also where it is kept for later.
        """
        chooses |= at.steers
        if at.refuses or not (chooses or at.round):
            return answer
        self.guesses += chooses
        if at.breaks and answer is True and not at.rounds_over:
            self._note(f"the loop{where()} is left when a value says so: it went on to its bound, not validated")
            return False
        if at.rounds_over > MOST_ROUNDS:
            raise EndlessLoop(
                f"the loop at {at.loop} did not end in {at.round:,} rounds; its end depends on values, and a plan has "
                "none: give it a bound, such as max_new_tokens or a number of rounds"
            )
        if at.rounds_over:
            self._note(
                f"the loop at {at.loop} ends on a value{where()}: it was ended after {MOST_ROUNDS} rounds, which is "
                "not validated; a bound in the code gives an exact plan"
            )
            if isinstance(answer, bool):
                return at.breaks or answer ^ bool(at.rounds_over % 2)
            return type(answer)(_OTHERS[at.rounds_over % len(_OTHERS)])
        if chooses:
            self._note(f"the code{where()} chooses by a value that a plan does not know, which is not validated")
        return answer

    @contextmanager
    def arrays(self) -> Iterator[None]:
        """A context in which `.numpy()` of a fake tensor returns an array of ones."""

        def numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
            if (value := self.values.of(tensor)) is not None:
                self._note(*self._read_note([tensor]))
                self._read(self.values.origin([tensor]), tensor)
                with unset_fake_temporarily():
                    return value.clone().numpy(force=force)
            if tensor.numel() > SMALL_ELEMENTS:
                raise WorldError(
                    f"the code{where()} reads {tensor.numel():,} values with .numpy(), and a plan has no values; "
                    "move this code out of the step, or plan without it"
                )
            self._note(f".numpy() on a {str(tensor.dtype).removeprefix('torch.')} tensor answered ones")
            with unset_fake_temporarily():
                ones = torch.ones(tensor.shape, dtype=tensor.dtype, requires_grad=tensor.requires_grad)
                return ones.numpy(force=force)  # torch refuses what needs a gradient, as ever

        def heard(plain: Any) -> Any:
            def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                made = plain(tensor, *args, **kwargs)
                if not isinstance(tensor, FakeTensor):  # torch reads a real tensor without an operator
                    self._read(self.given([tensor]), made)
                return made

            return read

        with (
            patched(FakeTensor, "numpy", lambda _: numpy),
            patched(torch.Tensor, "tolist", heard),
            patched(torch.Tensor, "numpy", heard),
        ):
            yield

    def _note(self, *assumptions: str) -> None:
        for each in dict.fromkeys(assumptions):
            self.assumptions[each] = self.assumptions.get(each, 0) + 1


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
    with without_modes(), torch.random.fork_rng(), eager, mode, FakeOperators({}, Kernels(), density):
        try:
            yield lambda tree: map_tensors(fake, tree)
        finally:
            torch.clear_autocast_cache()


def _device(tensor: torch.Tensor) -> torch.device:
    """The device of a tensor. This is called as often as all operators together."""
    return tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device


def _unsupported(func: Any) -> WorldError:
    own = "" if func.namespace == "aten" else f"register one with torch.library.register_fake({func.name()!r}), or "
    return WorldError(f"{func}{where()} has no fake kernel, so a plan cannot run it; {own}plan without it")


def _storage(tensor: torch.Tensor) -> int:
    return identity_of(tensor.untyped_storage())


def _read(tensor: torch.Tensor) -> float:
    """The only element of a real tensor."""
    with unset_fake_temporarily():
        return tensor.item()


def _answered(tensors: list[torch.Tensor], work: Any) -> tuple[list[torch.Tensor], Any]:
    """An all-reduce of fake ranks, with its tensors as the result. DDP needs one; the fake backend gives none."""
    return tensors, finished(tensors)


def is_small(tensor: torch.Tensor) -> bool:
    """Is a tensor real, and cheap enough to stay so: a scalar, or a few integers?"""
    if isinstance(tensor, FakeTensor) or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    return tensor.dim() == 0 or (tensor.dtype in _INTEGERS and tensor.numel() <= SMALL_ELEMENTS)


def _makes_small(func: Any, args: Any, kwargs: Any) -> bool:
    """Does a factory make a scalar, a few integers whose values are known, or a mask?

    Code looks into masks: `nn.Transformer` whether one is causal, transformers whether one hides anything.
    """
    if torch.device(kwargs.get("device") or "cpu").type != "cpu":
        return False
    dtype = kwargs.get("dtype")
    if func.overloadpacket is aten.arange:
        integers = dtype in _INTEGERS or (dtype is None and all(isinstance(arg, int) for arg in args))
        return integers and max(abs(arg) for arg in args) <= SMALL_ELEMENTS
    if not args or not isinstance(args[0], list | tuple):
        return False
    known = func.overloadpacket in (aten.zeros, aten.ones, aten.full, aten.empty) and dtype in _INTEGERS
    if func.overloadpacket is aten.full:
        known |= isinstance(args[1], float) and args[1] < MASKED
    elif func.overloadpacket is aten.ones:
        known |= len(args[0]) == 2 and dtype in (None, torch.float32)
    return len(args[0]) == 0 or (known and math.prod(args[0]) <= SMALL_ELEMENTS)
