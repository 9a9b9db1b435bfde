"""The card: enter it, and torch answers a script as with a card of this kind."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

from surefoot.torch_inside.card import fakes_answer, fakes_of_any_kind, modules_keep_parameters
from surefoot.world.card.answers import answers
from surefoot.world.card.devices import devices
from surefoot.world.card.placement import Placement
from surefoot.world.card.weights import weights_without_values
from surefoot.world.gpu.as_on import as_on
from surefoot.world.gpu.target import Gpu
from surefoot.world.library_tables import forget_fake_tables

if TYPE_CHECKING:
    from typing_extensions import Self


class Card(Placement):
    """Enter it, then its modes `below`, meters, its modes `above`, and run a script."""

    def __init__(self, gpu: Gpu | None, *, index: int = 0, ranks: int = 1) -> None:
        super().__init__(gpu, index=index, ranks=ranks)
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entering:
            enter = entering.enter_context
            enter(fakes_answer(self.mode, self.device))
            enter(modules_keep_parameters())
            enter(fakes_of_any_kind())
            if self.gpu is not None:
                enter(as_on(self.gpu))
            enter(answers(self))
            enter(torch.compiler.set_stance("force_eager"))
            enter(self.operators.arrays())
            enter(devices(self))
            enter(weights_without_values(self))
            self._entered = entering.pop_all()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._entered.__exit__(*failure)
        forget_fake_tables()
