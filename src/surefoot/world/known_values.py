"""Known values: small tensors are computed for real beside their fakes, if they depend on nothing that is fake.

Constants, index arithmetic, anchors, masks, counts and small draws depend on no parameter and no computed value. Code
that reads them takes its true path in a plan. A value belongs to a fake tensor. Views share the memory of their values,
so a write through one is seen by the others. A write of something unknown ends the values of all views.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.torch_inside.fake_mode import FakeTensor, unset_fake_temporarily
from surefoot.torch_inside.operators import private, schema_of
from surefoot.torch_inside.storages import identity_of
from surefoot.trees import map_tensors, tensors_in

aten = torch.ops.aten
KNOWN_ELEMENTS = 2**14
"""Tensors of at most this many elements have a value beside their fake."""
BATCH_ELEMENTS = 2**22
"""So have those of a batch, and what is made of nothing else: which neighbours it has decides how large a graph is."""

DRAWN, READ = "a random number", "a value of the batch"
"""What a value may depend on that differs from step to step."""

_BY_SHAPE = {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like"}
_NEW = {"new_zeros", "new_ones", "new_full", "new_empty"}
_MADE = {"zeros", "ones", "full", "empty", "arange", "linspace", "logspace", "eye", "rand", "randn", "randint"}
_MADE |= {"randperm", "normal", "scalar_tensor", "tril_indices", "triu_indices", "hann_window", "hamming_window"}
_DECIDES = {"or": True, "and": False, "mul": False}
"""The value of one operand that decides the result, whatever the other is."""
_WRITES_UNDECLARED = ("running_mean", "running_var")
"""Arguments of normalisations that are written to although some schemas do not say so."""
_SCALER = private("_amp_foreach_non_finite_check_and_unscale_").default
"""Writes whether a gradient is infinite: all are assumed to be finite, so it writes what is there."""
_NAME = "_surefoot_known"
REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)


@dataclass
class Memory:
    """What the values of all views of one memory share."""

    known: bool = True
    of: str = ""
    """`DRAWN` or `READ`, if it depends on such."""


@dataclass(frozen=True)
class Known:
    """The value beside a fake tensor. None for a view whose value was not computed."""

    value: torch.Tensor | None
    memory: Memory

    def __deepcopy__(self, memo: dict[int, Any]) -> Known:
        """For a copied fake tensor, which has memory of its own."""
        if self.value is None or not self.memory.known:
            return Known(None, Memory(known=False))
        with unset_fake_temporarily():
            return Known(self.value.clone(), Memory(of=self.memory.of))


@dataclass(frozen=True)
class Traits:
    """What must be known of an operator: which arguments it writes to, and what its result depends on."""

    written: tuple[str, ...]
    names: tuple[str, ...]
    is_view: bool
    reads: bool
    """Whether the result, or its shape, depends on values, so that there is no fake of it."""
    draws: bool
    by_shape: bool
    new: bool
    makes: bool
    decided_by: bool | None
    computes: bool
    """Whether it can be run for real beside: an operator of torch that moves no data between ranks."""


class KnownValues:
    """The values of small tensors in a fake world."""

    def __init__(self) -> None:
        self._spoiled: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        """Storages of real tensors to which something unknown was written."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of a tensor: of a small real one itself. None if it is not known."""
        if tensor.requires_grad:
            return None
        if isinstance(tensor, FakeTensor):
            known = vars(tensor).get(_NAME)
            if known is None or known.value is None or not known.memory.known or isinstance(tensor, torch.nn.Parameter):
                return None
            value = known.value
            return value if value.dtype is tensor.dtype and value.shape == tensor.shape else None
        plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
        return tensor if plain and tensor.numel() <= BATCH_ELEMENTS and not self.is_spoiled(tensor) else None

    def origin(self, tensors: list[torch.Tensor]) -> str:
        """What the values of some tensors depend on that differs from step to step. Empty if nothing."""
        found = {memory.of for each in tensors if (memory := _memory(each)) is not None}
        return DRAWN if DRAWN in found else READ if READ in found else ""

    def is_spoiled(self, tensor: torch.Tensor) -> bool:
        """Whether something unknown was written to a real tensor."""
        return bool(self._spoiled) and identity_of(tensor.untyped_storage()) in self._spoiled

    def know(self, fake: torch.Tensor, value: torch.Tensor, of: str = "") -> None:
        """Gives a fake tensor a copy of a value, if both are small and it holds nothing else."""
        if isinstance(fake, FakeTensor) and value.numel() <= most_elements(of) and value.layout is torch.strided:
            with unset_fake_temporarily():
                vars(fake)[_NAME] = Known(value.detach().clone(), Memory(of=of))

    def carry(self, tensor: torch.Tensor, copy: torch.Tensor) -> None:
        """Gives a copy on another device the value of a tensor, or none: what it was made of has other values."""
        value = self.of(tensor)
        if isinstance(copy, FakeTensor):
            vars(copy).pop(_NAME, None)
            if value is not None:
                with unset_fake_temporarily():
                    cast = value.to(copy.dtype)
                self.know(copy, cast, self.origin([tensor]))

    # --------------------------------------------------------------------------------------- operators

    def read(self, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> list[Any]:
        """In a list, the true result of an operator that has no fake because it depends on values; empty if unknown."""
        traits = traits_of(func)
        if not (traits.reads and traits.computes) or not tensors:
            return []
        values = self._values(tensors)
        if values is None:
            return []
        out = _run(func, args, kwargs, values)
        of = self.origin(tensors)
        return [map_tensors(lambda made: self.faked(made, of), each) for each in out]

    def faked(self, made: torch.Tensor, of: str = "") -> torch.Tensor:
        """A fake of a real tensor, with its value beside it."""
        if made.layout is not torch.strided or isinstance(made, FakeTensor):
            return made
        fake = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)
        self.know(fake, made, of)
        return fake

    def written(self, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> None:
        """Before an operator runs on fakes: ends what is known of tensors to which it writes something unknown."""
        traits = traits_of(func)
        if not traits.written or func is _SCALER or not any(isinstance(each, FakeTensor) for each in tensors):
            return  # without a fake the operator runs for real
        given = dict(zip(traits.names, args, strict=False)) | kwargs
        targets = list(tensors_in([given.get(name) for name in traits.written]))
        if not any(_memory(each) is not None or _is_real(each) for each in targets):
            return
        if traits.computes and not any(map(_is_real, targets)) and self._values(tensors) is not None:
            return  # followed, after the fake operator has run
        for each in targets:
            memory = _memory(each)
            if memory is not None:
                memory.known = False
            elif _is_real(each) and not each.requires_grad:
                self._spoil(each.untyped_storage())

    def follow(
        self, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: Any, out: Any, *, extreme: str = ""
    ) -> None:
        """After an operator ran on fakes: gives its results their values, if they are known.

        With an `extreme`, draws between two bounds are at the lower or the upper one.
        """
        traits = traits_of(func)
        if traits.written and not any(isinstance(each, FakeTensor) for each in tensors):
            return  # it ran for real
        made = list(tensors_in(out))
        most = max((each.numel() for each in made), default=0)
        few = traits.written or (made and (most <= KNOWN_ELEMENTS or most <= most_elements(self.origin(tensors))))
        if traits.computes and few and self._followed(func, traits, tensors, args, kwargs, made, extreme):
            return
        if traits.is_view and tensors and (memory := _memory(tensors[0])) is not None:
            for each in made:
                vars(each)[_NAME] = Known(None, memory)

    def _followed(
        self,
        func: Any,
        traits: Traits,
        tensors: list[torch.Tensor],
        args: Any,
        kwargs: Any,
        made: list[torch.Tensor],
        extreme: str,
    ) -> bool:
        of = DRAWN if traits.draws else ""
        if not tensors:
            results = _run(func, args, kwargs, {}) if traits.makes else []
        elif traits.by_shape or traits.new:
            like = torch.Size() if traits.new else tensors[0].shape
            with unset_fake_temporarily():
                template = torch.empty(like, dtype=tensors[0].dtype)
            results = _run(func, args, kwargs, {id(tensors[0]): template}) if len(tensors) == 1 else []
        elif (values := self._values(tensors)) is not None:
            results = _run(func, args, kwargs, values)
            of = of or self.origin(tensors)
            if traits.written and not results:
                self._end(tensors)
        else:
            results = self._decided(traits, tensors, made)
        if not results:
            return False
        if traits.draws and extreme:
            to_extreme(func, args, kwargs, results, extreme)
        self._give(tensors, made, list(tensors_in(results)), of)
        return True

    def _decided(self, traits: Traits, tensors: list[torch.Tensor], made: list[torch.Tensor]) -> list[torch.Tensor]:
        """The result if one known operand decides it: true in an `or`, false in an `and`, zero in a product."""
        if (
            traits.decided_by is None
            or traits.written
            or len(made) != 1
            or made[0].dtype.is_floating_point
            or made[0].is_complex()
        ):
            return []
        for each in tensors:
            value = self.of(each)
            if value is not None and value.numel() and not value.is_floating_point():
                with unset_fake_temporarily():
                    alike = bool((value == 1).all()) if traits.decided_by else not bool(value.any())
                    if alike and (traits.decided_by is False or made[0].dtype is torch.bool):
                        return [torch.full(made[0].shape, int(traits.decided_by), dtype=made[0].dtype)]
        return []

    def _give(self, tensors: list[torch.Tensor], made: list[torch.Tensor], values: list[torch.Tensor], of: str) -> None:
        given = {id(each) for each in tensors}
        memories = {
            identity_of(known.value.untyped_storage()): known.memory
            for each in tensors
            if (known := _known(each)) is not None and known.value is not None
        }
        real = {identity_of(each.untyped_storage()) for each in tensors if _is_real(each)}
        for fake, value in zip(made, values, strict=False):
            if not isinstance(fake, FakeTensor) or value.layout is not torch.strided:
                continue
            if id(fake) in given:
                memory = _memory(fake)
                if memory is not None and memory.known:
                    memory.of = of or memory.of
                    continue
            storage = identity_of(value.untyped_storage())
            if storage in real:
                self.know(fake, value, of)  # never the memory of a tensor of the user's
                continue
            vars(fake)[_NAME] = Known(value, memories.setdefault(storage, Memory(of=of)))

    def _values(self, tensors: list[torch.Tensor]) -> dict[int, torch.Tensor] | None:
        """The values of all these tensors by their ids; None if one is not known."""
        values = {}
        for each in tensors:
            value = self.of(each)
            if value is None:
                return None
            values[id(each)] = value
        return values

    def _end(self, tensors: list[torch.Tensor]) -> None:
        for each in tensors:
            if (memory := _memory(each)) is not None:
                memory.known = False

    def _spoil(self, storage: torch.UntypedStorage) -> None:
        key = identity_of(storage)
        self._spoiled[key] = weakref.ref(storage, functools.partial(self._gone, key))

    def _gone(self, key: int, _: Any) -> None:
        self._spoiled.pop(key, None)


def to_extreme(func: Any, args: Any, kwargs: Any, drawn: Any, extreme: str) -> bool:
    """Replaces what was drawn between two bounds by the `low` or the `high` one. Returns whether there are bounds.

    A coin that a number below its chance decides comes up true for the low one.
    """
    name, low = func.overloadpacket.__name__.rstrip("_"), extreme == "low"
    given = dict(zip(traits_of(func).names, args, strict=False)) | kwargs
    if name in ("rand", "rand_like"):
        value: float = 0.0 if low else 1 - 2**-11
    elif name == "uniform":
        first, last = given.get("from", 0.0), given.get("to", 1.0)
        value = first if low else last - (last - first) * 2**-11
    elif name == "bernoulli":
        value = float(low)
    elif name in ("randint", "randint_like") or (name == "random" and given.get("to") is not None):
        first, last = given.get("low", given.get("from", 0)) or 0, given.get("high", given.get("to"))
        value = first if low else last - 1
    else:
        return False
    with unset_fake_temporarily():
        for each in tensors_in(drawn):
            if not isinstance(each, FakeTensor):
                each.fill_(value)
    return True


def most_elements(of: str) -> int:
    """The elements of the largest tensor that has a value, by what it depends on."""
    return BATCH_ELEMENTS if of == READ else KNOWN_ELEMENTS


@functools.cache
def traits_of(func: Any) -> Traits:
    """The traits of an operator. They are asked for every call."""
    schema, name = schema_of(func), func.overloadpacket.__name__
    of_torch = func.namespace in ("aten", "prims")
    return Traits(
        written=tuple(
            each.name
            for each in schema.arguments
            if (each.alias_info is not None and each.alias_info.is_write)
            or each.name in _WRITES_UNDECLARED
            or func.namespace == "c10d"  # its schemas do not say what a collective writes to
        ),
        names=tuple(each.name for each in schema.arguments),
        is_view=bool(func.is_view),
        reads=not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.isdisjoint(func.tags),
        draws=torch.Tag.nondeterministic_seeded in func.tags,
        by_shape=of_torch and name in _BY_SHAPE,
        new=of_torch and name in _NEW,
        makes=of_torch and name in _MADE,
        decided_by=_DECIDES.get(name.strip("_").removeprefix("bitwise_").removeprefix("logical_")),
        computes=of_torch and name not in ("set_", "resize_", "as_strided", "as_strided_"),
    )


def _run(func: Any, args: Any, kwargs: Any, values: dict[int, torch.Tensor]) -> list[Any]:
    """In a list, the result of an operator on values; empty if it refuses them."""
    given = {name: _aside(each) for name, each in kwargs.items() if name not in ("device", "pin_memory")}
    if torch.device(kwargs.get("device") or "cpu").type == "meta":
        return []
    try:
        with unset_fake_temporarily():
            args, given = map_tensors(lambda each: values[id(each)], (args, given))
            return [func(*args, **given)]
    except REFUSALS:
        return []


def _aside(argument: Any) -> Any:
    """A copy of a generator: a plan draws nothing from that of the user."""
    return argument.clone_state() if isinstance(argument, torch.Generator) else argument


def _known(tensor: torch.Tensor) -> Known | None:
    return vars(tensor).get(_NAME) if isinstance(tensor, FakeTensor) else None


def _memory(tensor: torch.Tensor) -> Memory | None:
    known = _known(tensor)
    return None if known is None else known.memory


def _is_real(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided
