"""Runs compiled code as written while the checks look, and says so on the terminal."""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args

SAID = (
    "surefoot: code under torch.compile runs uncompiled while the checks look, with the rounding and the speed of the "
    "code as written"
)


class CompiledCode(Observer):
    """Nothing inside compiled code can be observed, and hooks would break a full graph."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.seen = False
        """Code was compiled, and ran as written."""

    def __enter__(self) -> CompiledCode:
        self._entered.enter_context(torch.compiler.set_stance("force_eager"))
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        self.follow(torch, "compile", before=self._compiles)
        return self

    def _compiles(self, *_: object, **__: object) -> None:
        if not self.seen:
            self.seen = True
            print(SAID, file=sys.stderr, flush=True)

    def model_called(self, model: nn.Module, args: Args) -> None:
        if type(model).__name__ == "OptimizedModule":  # compiled before anybody looked
            self._compiles()
