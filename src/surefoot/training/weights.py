"""The trained weights of a run as one file with a digest; a damaged file is written again."""

from __future__ import annotations

import errno
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file, save_model

from surefoot.checkpoint.consolidate import TensorsOf
from surefoot.checkpoint.files import Fingerprint, fingerprint
from surefoot.checkpoint.manifest import damage
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError, RunError
from surefoot.plain_files import refusals_of, sync_file, sync_folder
from surefoot.records.run import Run

DRAFT = ".weights.part"
"""The folder in which the file is written. safetensors may leave temporary files there if it is killed."""


QUANTIZATION = "quantization"
"""The entry of a file's metadata that says how its weights are quantised. Without it they are not."""


def write_weights(
    final: Path, model: TensorsOf | dict[str, torch.Tensor], *, quantization: str | None = None
) -> Fingerprint:
    """Writes a model or its tensors as safetensors, whole or not at all. On return the file is on disk."""
    folder = final.parent / DRAFT
    draft = folder / final.name
    with refusals_of(final):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
            _save(model, draft, {QUANTIZATION: quantization} if quantization else {})
            sync_file(draft)
            found = fingerprint(draft)
            os.replace(draft, final)
            sync_folder(final.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def damage_of(run: Run) -> str | None:
    """What is wrong with the weights of a finished run, or None."""
    if run.status != "finished":
        return None
    if run.weights_digest:
        return damage(Path(run.path), run.weights.name, Fingerprint(run.weights_bytes, run.weights_digest))
    return _unreadable(run.weights)  # a run that surefoot 0.1 made has no digest


def verified_weights(run: Run) -> Path:
    """The weights of a finished run, after their bytes were compared with the digest."""
    if (reason := damage_of(run)) is not None:
        raise RunError(
            f"cannot use the weights of {run.path}: {reason}\n"
            "run the same `surefoot train` command again: it writes them again from the last checkpoint"
        )
    return run.weights


def to_repair(run: Run, reason: str) -> Run:
    """Reopens a finished run with damaged weights: it resumes from its last checkpoint and writes them again.

    All ranks must call it.
    """
    try:
        checkpoint = Checkpoints(run.checkpoints).newest()
    except CheckpointError as error:
        raise _beyond_repair(run, reason, str(error)) from error
    if checkpoint is None:
        raise _beyond_repair(run, reason, f"{run.checkpoints} holds no checkpoint")
    return replace(run, status="running", starts=run.starts + 1)


def _beyond_repair(run: Run, reason: str, why: str) -> RunError:
    return RunError(
        f"the weights of {run.path} are lost: {reason}; and surefoot cannot write them again: {why}\n"
        f"restore {run.weights.name} from a copy, or train again in another directory (--run)"
    )


def _save(model: TensorsOf | dict[str, torch.Tensor], file: Path, about: dict[str, str]) -> None:
    """Saves with safetensors. Turns its error messages back into the OSError that caused them."""
    try:
        if isinstance(model, dict):
            save_file(model, file, metadata={"format": "pt", **about})
        else:
            save_model(cast(Any, model), str(file))
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code) if number else str(error)) from error


def _unreadable(file: Path) -> str | None:
    if not file.exists():
        return f"{file.name} is missing"
    try:
        with safe_open(file, framework="pt"):
            return None
    except (SafetensorError, OSError) as error:
        return f"{file.name} cannot be read: {error}"
