"""Lightning: `Trainer(callbacks=[SurefootCallback("runs/mine")])` keeps a fit as a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.errors import MissingPackage
from surefoot.integrations.booking import Booking

try:
    from lightning.pytorch import Callback
except ImportError as missing:
    raise MissingPackage("surefoot.integrations.lightning needs Lightning: pip install lightning") from missing


class SurefootCallback(Callback):
    """Measures and checks a fit. The options are those of `Booking`: `plan`, `allow`, `check_all`."""

    def __init__(self, run: str | Path, **options: Any) -> None:
        self.booking = Booking(run, **options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self.booking.begin()
            self.booking.keep_settings(pl_module.hparams)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.booking.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.booking.end(error=exception)
