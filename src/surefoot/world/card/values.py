"""Values that nobody knows, in a script: a stated default in their place, counted by line, and the script goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from surefoot.errors import WorldError
from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.torch_inside.modes import without_modes
from surefoot.torch_inside.patches import patched
from surefoot.world.fake_operators import EndlessLoop, FakeOperators
from surefoot.world.user_line import where
from surefoot.world.value_loops import reading


class ScriptOperators(FakeOperators):
    """Like those of a recipe's step. A branch on an unknown value is answered too, because a script cannot be moved."""

    def _stand_in(self, func: Any, tensors: list[torch.Tensor], error: Exception) -> float | int:
        guessed, self.guessed = self.guessed, ""
        try:
            return super()._stand_in(func, tensors, error)
        except EndlessLoop:
            raise
        except WorldError:
            self._note(f"a branch{where()} hangs on a value that is not known: taken as false")
            return self._steered(False, reading())
        finally:
            self.guessed = guessed

    def made_up(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A real tensor in place of one whose values are not known: ones, or false."""
        self._note(f"values of a {str(tensor.dtype).removeprefix('torch.')} tensor were read{where()}: taken as ones")
        with without_modes():
            return (torch.zeros if dtype is torch.bool else torch.ones)(tensor.shape, dtype=dtype)

    @contextmanager
    def arrays(self) -> Iterator[None]:
        """A context in which `.numpy()` of a fake tensor returns made-up values."""

        def numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
            return self.made_up(tensor, tensor.dtype).numpy(force=force)

        with patched(FakeTensor, "numpy", lambda _: numpy):
            yield
