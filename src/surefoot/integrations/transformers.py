"""Transformers: `Trainer(..., callbacks=[SurefootCallback("runs/mine")])` keeps a training as a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.errors import MissingPackage
from surefoot.integrations.booking import Booking

try:
    from transformers import TrainerCallback
except ImportError as missing:
    raise MissingPackage(
        "surefoot.integrations.transformers needs Transformers: pip install 'transformers[torch]'"
    ) from missing


class SurefootCallback(TrainerCallback):
    """Measures and checks `Trainer.train()`. The options are those of `Booking`: `plan`, `allow`, `check_all`."""

    def __init__(self, run: str | Path, **options: Any) -> None:
        self.booking = Booking(run, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        self.booking.begin(*([] if optimizer is None else [optimizer]))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.booking.log(logs or {}, step=state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.booking.end()
