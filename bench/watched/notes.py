"""Notes: what a script writes down of its steps: each loss to the last bit, and the CPU seconds of each step."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


class Notes:
    """Call it with the loss of each step; `keep` writes all to the file that the script was given."""

    def __init__(self) -> None:
        self.losses: list[str] = []
        self.moments = [(time.process_time(), time.perf_counter())]

    def __call__(self, loss: float) -> None:
        self.losses.append(float(loss).hex())
        self.moments.append((time.process_time(), time.perf_counter()))

    def keep(self, rank: int = 0) -> None:
        found = {"losses": self.losses, "moments": self.moments}
        Path(f"{sys.argv[1]}.{rank}").write_text(json.dumps(found), encoding="utf-8")
