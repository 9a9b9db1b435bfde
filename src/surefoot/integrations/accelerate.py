"""Accelerate: `Accelerator(log_with=SurefootTracker("runs/mine"))` keeps a loop as a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.errors import MissingPackage
from surefoot.integrations.booking import Booking

try:
    from accelerate.tracking import GeneralTracker
except ImportError as missing:
    raise MissingPackage("surefoot.integrations.accelerate needs Accelerate: pip install accelerate") from missing


class SurefootTracker(GeneralTracker):
    """Measures and checks a loop, from `init_trackers` to `end_training`. The options are those of `Booking`.

    Accelerate starts trackers in its main process only, so bugs between ranks are not looked for.
    """

    name = "surefoot"
    requires_logging_directory = False

    def __init__(self, run: str | Path, **options: Any) -> None:
        super().__init__()
        self.booking = Booking(run, **options)

    @property
    def tracker(self) -> Booking:
        return self.booking

    def start(self) -> None:
        self.booking.begin()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.booking.keep_settings(values)

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        self.booking.log(values, step=step)

    def finish(self) -> None:
        self.booking.end()
