"""Tables that libraries keep for the process: those that were made of fake tensors are forgotten when their world ends.

bitsandbytes makes its code tables with the first tensor that it quantises, and keeps them in dictionaries and caches of
its modules. A table of a fake world would turn every later result fake, also in a training for real, without an error.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.trees import tensors_in

LIBRARIES = ("bitsandbytes",)


def forget_fake_tables() -> None:
    """Drops what the libraries keep of fake tensors. They make it anew when they need it."""
    for module in [found for name, found in sys.modules.items() if name.partition(".")[0] in LIBRARIES]:
        for value in [value for name, value in vars(module).items() if not name.startswith("__")]:
            if type(value) is dict:
                for key in [key for key, kept in value.items() if _has_fakes(kept)]:
                    del value[key]
            elif (clear := _clears(value)) and any(map(_has_fakes, _cached(value))):
                clear()


def _clears(value: Any) -> Callable[[], None] | None:
    """What empties a cache of functools; None of anything else."""
    return getattr(value, "cache_clear", None) if callable(value) else None


def _cached(function: Any) -> Iterator[Any]:
    """What a cache of functools holds, which it shows to nobody but the garbage collector."""
    for kept in gc.get_referents(function):
        yield from kept.values() if type(kept) is dict else (kept,)


def _has_fakes(value: Any) -> bool:
    return any(isinstance(tensor, FakeTensor) for tensor in tensors_in(value))
