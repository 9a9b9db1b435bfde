"""A run: a directory with the recipe, its settings, the log, events, findings, checkpoints and the weights."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from xxhash import xxh3_128_hexdigest

from surefoot.errors import RunError, did_you_mean
from surefoot.plain_files import write_whole
from surefoot.records.codec import read_both, to_json, to_plain
from surefoot.records.data_identity import DataIdentity
from surefoot.records.event import Event, read_events
from surefoot.records.layers import LayersRow, read_layers
from surefoot.records.log import LogRow, read_rows, standing
from surefoot.records.shown import Shown
from surefoot.records.tally import Tally
from surefoot.records.token_ledger import TokenLedger
from surefoot.units import bits_per_byte

RESTORED = ".restored"
"""A folder in a run's directory for files that are being fetched from a mirror."""
Status = Literal["running", "interrupted", "finished", "failed", "stopped"]
"""`stopped` is in no file: so is a run called that says it is running, but whose process has ended."""


@dataclass(frozen=True)
class Run(Shown):
    """The content of `run.json`, written whenever the run starts, saves or ends.

    `status` is `running` until the last step is saved; a killed run keeps it. `settings` and `source_digest` show
    whether the recipe has changed since the start, `module_digests` whether its imported modules have.
    `choices` says what surefoot chose for the model: which parameters decay, which blocks are recomputed.
    `memory_bytes` is the memory kept between steps, by account, and `traffic` the collectives of one step, both of
    rank 0 now. `layout` is how the ranks hold the model; a run may resume in another layout.
    `passed_over` lists the batches that rewinds skipped.
    `step_flops` and `peak_flops` are set if the device has a datasheet, `token_ledger` when a run on tokens ends.
    `save_seconds` is how long training stood still for its `saves`, which are written in the background. `saved_step`
    is the newest step with a whole checkpoint on the disk. `environment` is that of the run's start.
    `determinism` holds the flags of torch, cuDNN and cuBLAS that decide whether a GPU repeats a step bit for bit.
    `weights_bytes` and `weights_digest`, an xxh3_128, show whether the weights of a finished run are whole.
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
    unit: str = "token"
    """What `tokens` counts: token or sample."""
    seconds: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None
    evaluation_loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the last evaluation."""
    best_step: int = 0
    """The step with the best evaluation so far, if the recipe says what is best; else 0."""
    best_value: float | None = None
    weights_step: int = 0
    """The step that the weights of a finished run are of."""
    tests: dict[str, dict[str, float]] = field(default_factory=dict)
    """For each test data its loss and metrics, after the last step, with those weights."""
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
    unsaved: str = ""
    """Why the checkpoint after the last step is not on the disk. Empty if it is, or if the recipe saves none."""
    environment: dict[str, str] = field(default_factory=dict)
    determinism: dict[str, str] = field(default_factory=dict)
    id: str = ""
    """Random, set if the run has a mirror: distinguishes it from other runs of the same recipe."""
    weights_bytes: int = 0
    weights_digest: str = ""
    digest: str = ""
    """Only in the file: the digest of everything else in it."""

    @property
    def log(self) -> Path:
        """One JSON line per step."""
        return Path(self.path) / "log.jsonl"

    @property
    def layers(self) -> Path:
        """One JSON line for each step whose layers were measured."""
        return Path(self.path) / "layers.jsonl"

    @property
    def events(self) -> Path:
        """One JSON line for each event besides the steps."""
        return Path(self.path) / "events.jsonl"

    @property
    def findings(self) -> Path:
        """Everything that the checks found."""
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
        """A copy of the recipe's file."""
        return Path(self.path) / "recipe.py"

    @property
    def checkpoint_bytes(self) -> int:
        """The size of the newest checkpoint on disk; 0 if there is none."""
        found = sorted(self.checkpoints.glob("step-*")) if self.checkpoints.exists() else []
        return sum(file.stat().st_size for file in found[-1].rglob("*") if file.is_file()) if found else 0

    def rows(self) -> list[LogRow]:
        """The log, one row for each step, oldest first."""
        return standing(read_rows(self.log)) if self.log.exists() else []

    def layer_rows(self) -> list[LayersRow]:
        """The figures of the layers, one row for each step that was measured, oldest first."""
        return standing(read_layers(self.layers))

    def bits_per_byte(self, loss: float) -> float | None:
        """A held-out loss in bits per byte of text; None if the data is not text."""
        return None if self.bytes_per_token is None else bits_per_byte(loss, self.bytes_per_token)

    def batch_of(self, number: int) -> int:
        """The batch that the step after `number` others trains on. Batches that rewinds skipped do not count."""
        for batch in sorted(self.passed_over):
            number += batch <= number
        return number

    def after(self, rows: Iterable[LogRow]) -> "Run":
        """The run after these steps."""
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
                metrics=row.metrics or run.metrics,
                updates_left_out=run.updates_left_out + (not row.updated),
            )
        return run

    def as_logged(self, *, ended: bool) -> "Run":
        """A run that is not over, as its log shows it. `ended`: the process that trained it is gone.

        The file of a run is as old as its last checkpoint, and a killed process writes nothing into it.
        """
        if self.status != "running":
            return self
        logged = self.before_its_steps().after(self.rows())
        run = replace(logged, best_step=self.best_step, best_value=self.best_value)
        return replace(run, status="stopped", reason=run._stopped_without_a_word()) if ended else run

    def _stopped_without_a_word(self) -> str:
        again = "" if not self.settings else "; the same command starts it again"
        if self.saved_step:
            again = f"; the same command resumes it from step {self.saved_step}"
        return f"stopped without a word after step {self.steps}{again}"

    def before_its_steps(self) -> "Run":
        """The run as it was before its first step."""
        nothing: dict[str, Any] = {"steps": 0, "tokens": 0, "seconds": 0.0, "updates_left_out": 0, "token_ledger": None}
        unseen: dict[str, Any] = {"metrics": {}, "best_step": 0, "best_value": None}
        return replace(self, first_loss=None, last_loss=None, evaluation_loss=None, **nothing, **unseen)

    def happened(self) -> list[Event]:
        """The events, oldest first."""
        return list(read_events(self.events))


def write_run(run: Run) -> None:
    """Writes `run.json` atomically, with a digest of its content."""
    plain = to_plain(run)
    write_whole(Path(run.path) / "run.json", to_json({**plain, "digest": _digest(plain)}) + "\n")


def refuse_missing(path: str | Path) -> None:
    """Raises if there is nothing at a path where a run was named, with similar names that are there."""
    place = Path(path)
    if not place.exists():
        beside = sorted(each.name for each in place.parent.glob("*") if each.is_dir())
        meant = did_you_mean(place.name, beside)
        raise RunError(f"there is no folder {path}; {meant}`surefoot train RECIPE` makes a run directory")


def read_run(path: str | Path) -> Run:
    """Reads the run in a directory. The directory may have been moved."""
    file = Path(path) / "run.json"
    if not file.exists():
        refuse_missing(path)
        raise RunError(f"{path} is not a run: it holds no run.json; `surefoot train RECIPE` makes a run directory")
    run, plain = read_both(Run, file)
    if plain.get("digest", "") not in ("", _digest(plain)):  # surefoot 0.1 wrote none
        raise RunError(
            f"{file} was changed by hand or is damaged: its content does not match its digest\n"
            "restore it from a copy, or name another directory"
        )
    return replace(run, path=str(path), digest="")


def _digest(plain: dict[str, Any]) -> str:
    return xxh3_128_hexdigest(json.dumps({**plain, "digest": ""}, sort_keys=True).encode())
