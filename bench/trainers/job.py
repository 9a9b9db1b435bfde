"""Job: what one process of a trainer is asked to do, and what it answers.

As a command, a trainer is started as `COMMAND JOB.json`, with the fields of `Job` in that file. It answers with a
JSON object per line, in `answer`: one for each step,

    {"step": 7, "data": ["9f..."], "losses": ["0x1.8p+0"], "lr": "0x1.0p-10", "norm": "0x1.2p-1"}

with a digest and the loss of each micro-batch, the learning rate of the update and the norm of the gradients that
it is made from, floats as hexadecimal; and one when it has taken its last step:

    {"weights": "5b...", "optimizer": "c2..."}

Digests may be made in any way, as long as equal bits give equal digests and others do not. A field that a trainer
cannot give is left out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Job:
    """Train `work` from the last checkpoint in `folder`, if there is one, to the last of `steps` steps.

    If there is a `stop`, a checkpoint is made after that step at the latest, and the process dies without notice when
    the step after it begins. `start` is the `stop` of the process before; 0 for the first one. A run
    that is not `resumable` is only timed: it may load its data in the plainest way.
    """

    work: str
    folder: str
    answer: str
    steps: int
    start: int = 0
    stop: int | None = None
    resumable: bool = True
    knobs: dict[str, Any] = field(default_factory=dict)


def write_job(path: Path, job: Job) -> None:
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")


def read_job(path: Path) -> Job:
    return Job(**json.loads(path.read_text(encoding="utf-8")))
