"""A run: a directory with the recipe, its settings, the log and the weights."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from surefoot.errors import RunError
from surefoot.records.codec import from_json, to_json
from surefoot.records.log import LogRow, read_rows


@dataclass(frozen=True)
class Run:
    """What `run.json` holds. `status` is `running` until the last step is saved."""

    path: str
    recipe: str
    about: str
    target: str
    knobs: dict[str, str | int | float | bool | None]
    status: Literal["running", "finished", "failed"]
    parameters: int
    device: str
    torch_version: str
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None
    reason: str = ""

    @property
    def log(self) -> Path:
        """One JSON line per step."""
        return Path(self.path) / "log.jsonl"

    @property
    def weights(self) -> Path:
        """The trained weights, as safetensors."""
        return Path(self.path) / "model.safetensors"

    @property
    def source(self) -> Path:
        """A copy of the file that holds the recipe."""
        return Path(self.path) / "recipe.py"

    def rows(self) -> list[LogRow]:
        """The log, oldest step first."""
        return list(read_rows(self.log)) if self.log.exists() else []


def write_run(run: Run) -> None:
    """Writes `run.json` whole or not at all."""
    final = Path(run.path) / "run.json"
    draft = final.with_suffix(".json.part")
    draft.write_text(to_json(run) + "\n", encoding="utf-8")
    os.replace(draft, final)


def read_run(path: str | Path) -> Run:
    """The run in a directory, wherever that directory has been moved to."""
    file = Path(path) / "run.json"
    if not file.exists():
        raise RunError(f"{path} is not a run: it holds no run.json; `surefoot train RECIPE` makes a run directory")
    run = from_json(Run, file.read_text(encoding="utf-8"))
    return replace(run, path=str(path))
