"""A run: a directory with the recipe, its settings, the log, events, findings, checkpoints and the weights."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from xxhash import xxh3_128_hexdigest

from surefoot.errors import RunError
from surefoot.records.codec import read_both, to_json, to_plain
from surefoot.records.data_identity import DataIdentity
from surefoot.records.event import Event, read_events
from surefoot.records.files import write_whole
from surefoot.records.log import LogRow, read_rows, standing
from surefoot.records.tally import Tally
from surefoot.records.token_ledger import TokenLedger
from surefoot.records.units import bits_per_byte

RESTORED = ".restored"
"""A folder in a run's directory: what is being fetched from a mirror."""
Status = Literal["running", "interrupted", "finished", "failed"]


@dataclass(frozen=True)
class Run:
    """What `run.json` holds, written whenever the run starts, saves or ends.

    `status` is `running` until the last step is saved; a killed run still says so. `settings` and `source_digest`
    tell whether the recipe is still the one that began, `module_digests` whether the modules it imports are.
    `choices` says what was settled for the model: which parameters decay, which blocks are recomputed.
    `memory_bytes` is what stays between steps, by account, and `traffic` the collectives of one step: of the first
    rank, as it holds the model now. `layout` is how its ranks hold the model; a run may go on in another.
    `passed_over` numbers the steps' worth of data left out by rewinds.
    `step_flops` and `peak_flops` are there where the device has a datasheet; `token_ledger` when a run on tokens ends.
    `save_seconds` is what training stood still for its `saves`; they are written behind its back. `saved_step` is the
    newest step of which a whole checkpoint was seen on the disk. `environment` is what the run began in.
    `weights_bytes` and `weights_digest`, an xxh3_128, tell whether the weights of a finished run are whole.
    """

    path: str
    recipe: str
    about: str
    target: str
    knobs: dict[str, str | int | float | bool | None]
    status: Status
    parameters: int
    device: str
    torch_version: str
    settings: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    source_digest: str = ""
    module_digests: dict[str, str] = field(default_factory=dict)
    data_identity: DataIdentity | None = None
    evaluation_identity: DataIdentity | None = None
    threads: int = 0
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None
    evaluation_loss: float | None = None
    bytes_per_token: float | None = None
    updates_left_out: int = 0
    starts: int = 1
    failures: int = 0
    attempt: int = 0
    layout: str = "1 rank"
    passed_over: tuple[int, ...] = ()
    reason: str = ""
    choices: tuple[str, ...] = ()
    memory_bytes: dict[str, int] = field(default_factory=dict)
    traffic: Tally = Tally()
    step_flops: float | None = None
    peak_flops: float | None = None
    token_ledger: TokenLedger | None = None
    saves: int = 0
    saved_step: int = 0
    save_seconds: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)
    id: str = ""
    """Drawn at the start of a run that has a mirror: tells it from other runs of the same recipe."""
    weights_bytes: int = 0
    weights_digest: str = ""
    digest: str = ""
    """In the file: of everything else in it."""

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from surefoot.records.html import run_table

        return run_table(self)

    @property
    def log(self) -> Path:
        """One JSON line per step."""
        return Path(self.path) / "log.jsonl"

    @property
    def events(self) -> Path:
        """One JSON line for each thing that happened beside the steps."""
        return Path(self.path) / "events.jsonl"

    @property
    def findings(self) -> Path:
        """What stopped the run, if it was a finding."""
        return Path(self.path) / "findings.json"

    @property
    def checkpoints(self) -> Path:
        """Saved states, one directory each."""
        return Path(self.path) / "checkpoints"

    @property
    def weights(self) -> Path:
        """The trained weights, as safetensors."""
        return Path(self.path) / "model.safetensors"

    @property
    def source(self) -> Path:
        """A copy of the file that holds the recipe."""
        return Path(self.path) / "recipe.py"

    @property
    def checkpoint_bytes(self) -> int:
        """Of the newest checkpoint, on disk; 0 if there is none."""
        found = sorted(self.checkpoints.glob("step-*")) if self.checkpoints.exists() else []
        return sum(file.stat().st_size for file in found[-1].rglob("*") if file.is_file()) if found else 0

    def rows(self) -> list[LogRow]:
        """The log, one row for each step, oldest first."""
        return standing(read_rows(self.log)) if self.log.exists() else []

    def bits_per_byte(self, loss: float) -> float | None:
        """A held-out loss in bits per byte of text; None where it is not of text."""
        return None if self.bytes_per_token is None else bits_per_byte(loss, self.bytes_per_token)

    def batch_of(self, number: int) -> int:
        """Which step's worth of data the step after `number` others takes; what rewinds left out does not count."""
        for batch in sorted(self.passed_over):
            number += batch <= number
        return number

    def after(self, rows: Iterable[LogRow]) -> "Run":
        """The run with what these steps add to it."""
        run = self
        for row in rows:
            run = replace(
                run,
                steps=row.step,
                tokens=run.tokens + row.tokens,
                seconds=run.seconds + row.seconds,
                first_loss=row.loss if run.first_loss is None else run.first_loss,
                last_loss=row.loss,
                evaluation_loss=run.evaluation_loss if row.evaluation_loss is None else row.evaluation_loss,
                updates_left_out=run.updates_left_out + (not row.updated),
            )
        return run

    def before_its_steps(self) -> "Run":
        """The run as if it had taken none."""
        nothing: dict[str, Any] = {"steps": 0, "tokens": 0, "seconds": 0.0, "updates_left_out": 0, "token_ledger": None}
        return replace(self, first_loss=None, last_loss=None, evaluation_loss=None, **nothing)

    def happened(self) -> list[Event]:
        """The events, oldest first."""
        return list(read_events(self.events))


def write_run(run: Run) -> None:
    """Writes `run.json` whole or not at all, with a digest of all that it says."""
    plain = to_plain(run)
    write_whole(Path(run.path) / "run.json", to_json({**plain, "digest": _digest(plain)}) + "\n")


def read_run(path: str | Path) -> Run:
    """The run in a directory, wherever that directory has been moved to."""
    file = Path(path) / "run.json"
    if not file.exists():
        raise RunError(f"{path} is not a run: it holds no run.json; `surefoot train RECIPE` makes a run directory")
    run, plain = read_both(Run, file)
    if plain.get("digest", "") not in ("", _digest(plain)):  # surefoot 0.1 wrote none
        raise RunError(
            f"{file} was changed by hand or is damaged: it does not have the digest it names\n"
            "put it back from a copy, or name another directory"
        )
    return replace(run, path=str(path), digest="")


def _digest(plain: dict[str, Any]) -> str:
    return xxh3_128_hexdigest(json.dumps({**plain, "digest": ""}, sort_keys=True).encode())
