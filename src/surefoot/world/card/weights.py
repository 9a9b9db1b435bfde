"""Weights that a script loads: large tensors get a shape, from their file or a configuration, and no values."""

from __future__ import annotations

import copy
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import safetensors
import torch

from surefoot.torch_inside.patches import patched
from surefoot.world.user_line import where

if TYPE_CHECKING:
    from surefoot.world.card.placement import Placement

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_PLAIN = safetensors.safe_open
_HOLDS_MODELS = "transformers.modeling_utils"


@contextmanager
def weights_without_values(card: Placement) -> Iterator[None]:
    """A context in which loaders of weights read the shapes of large tensors and not their bytes."""

    def opened(*args: Any, **kwargs: Any) -> _Headers:
        return _Headers(card, *args, **kwargs)

    def loads(module: Any) -> None:
        entered.enter_context(patched(module.PreTrainedModel, "from_pretrained", lambda plain: _loaded(card, plain)))

    _rename(_PLAIN, opened)
    try:
        with ExitStack() as entered, _once_imported(_HOLDS_MODELS, loads):
            yield
    finally:
        _rename(opened, _PLAIN)


def _rename(old: Any, new: Any) -> None:
    """Gives every module that has imported `safe_open` the other one."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("safe_open") is old:
            vars(module)["safe_open"] = new


class _Headers:
    """An open safetensors file whose large tensors are fake."""

    def __init__(self, card: Placement, *args: Any, **kwargs: Any) -> None:
        self._card = card
        self._file: Any = _PLAIN(*args, **kwargs)

    def __enter__(self) -> _Headers:
        self._file.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._file.__exit__(*failure)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def get_slice(self, name: str) -> Any:
        """A tensor of the file, to be read in part."""
        part = self._file.get_slice(name)
        dtype = _DTYPES.get(part.get_dtype())
        made = None if dtype is None else self._card.large(part.get_shape(), dtype)
        return part if made is None else _Slice(part, made)

    def get_tensor(self, name: str) -> torch.Tensor:
        """A tensor of the file."""
        part = self.get_slice(name)
        return part[...] if isinstance(part, _Slice) else self._file.get_tensor(name)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        """All tensors of the file."""
        names = self._file.keys()
        return {name: self.get_tensor(name) for name in names}


class _Slice:
    """A fake tensor of a file."""

    def __init__(self, part: Any, made: torch.Tensor) -> None:
        self._part, self._made = part, made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def __getitem__(self, at: Any) -> torch.Tensor:
        return self._made[at]


def _loaded(card: Placement, plain: Callable[..., Any]) -> Callable[..., Any]:
    """transformers' `from_pretrained`, which takes shapes from the configuration if there are no weights here."""

    def load(kind: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain(kind, name, *args, **kwargs)
        except OSError as missing:
            given = kwargs.pop("config", None)
            try:
                config = copy.deepcopy(given) if hasattr(given, "to_dict") else kind.config_class.from_pretrained(name)
            except (OSError, AttributeError):
                raise missing from None
        card.assume(f"the weights of {name} are not here{where()}: their shapes are those of its configuration")
        dtype = _dtype(kwargs.get("dtype", kwargs.get("torch_dtype")), config)
        return plain(kind, None, *args, config=config, state_dict=_state(card, kind, config, dtype), **kwargs)

    return load


def _dtype(asked: Any, config: Any) -> torch.dtype:
    asked = getattr(torch, asked, None) if isinstance(asked, str) else asked
    named = asked or getattr(config, "dtype", None)
    return named if isinstance(named, torch.dtype) else torch.float32


def _state(card: Placement, kind: Any, config: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        shapes = kind(copy.deepcopy(config)).state_dict()
    made = {}
    for name, each in shapes.items():
        kept = dtype if each.is_floating_point() else each.dtype
        large = card.large(each.shape, kept)
        made[name] = torch.zeros(each.shape, dtype=kept) if large is None else large
    return made


@contextmanager
def _once_imported(name: str, do: Callable[[Any], None]) -> Iterator[None]:
    """A context in which something is done with a module, now or when it is imported."""
    if name in sys.modules:
        do(sys.modules[name])
        yield
        return
    finder = _Finder(name, do)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as Python does, and does something once it has run."""

    def __init__(self, name: str, do: Callable[[Any], None]) -> None:
        self._name, self._do = name, do

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The module's spec, with a loader that goes on with it."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == self._name else None
        if spec is None or spec.loader is None:
            return None
        plain = spec.loader.exec_module

        def run(module: Any) -> None:
            plain(module)
            self._do(module)

        spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec
