"""Decides whether this recipe may resume the run in a directory, and lists the changes if not."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path

import torch

from surefoot.errors import RunError
from surefoot.plain_files import make_folder, write_whole
from surefoot.recipe.load import source_of
from surefoot.recipe.recipe import SETTINGS, Knob, Recipe
from surefoot.records.data_identity import DataIdentity
from surefoot.records.log import LogRow, read_rows
from surefoot.records.run import RESTORED, Run, read_run, write_run
from surefoot.techniques import deterministic
from surefoot.training.own_code import code_digest, module_digests
from surefoot.units import counted
from surefoot.world import cuda

FREE = {name for name, each in SETTINGS.items() if each.changes == "nothing"}
"""Settings that may change on resume without changing any bit of a step."""
SELECTING = {"evaluate_every", "evaluation_batches"}
"""Of these, the ones that decide which step is best, or what a scheduler of torch is told: then they may not change."""
LAYOUT = {name for name, each in SETTINGS.items() if each.changes == "layout"}
"""Settings that may change on resume, and change steps by rounding only."""
_USUAL = {name: each.default for name, each in SETTINGS.items()}
"""The setting of a run that began before surefoot had it."""
FAILURES = 3
"""After so many failures in a row without a new checkpoint, a run resumes only with --accept-change."""


def folder_for(recipe: Recipe, path: str | None) -> Path:
    """The directory of the run. Refuses a directory that is not empty and holds no run."""
    folder = Path(path) if path else _fresh(Path("runs") / f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}")
    fetching = recipe.mirror is not None and (folder / RESTORED).exists()
    if folder.is_dir() and not (folder / "run.json").exists() and not fetching and any(_foreign(folder)):
        raise RunError(f"{folder} is not empty and holds no run; name another directory")
    make_folder(folder)
    return folder


def new_run(recipe: Recipe, folder: Path, *, layout: str = "1 rank") -> Run:
    """Creates a run at step 0 and writes it to its directory."""
    source = source_of(recipe)
    run = Run(
        path=str(folder),
        recipe=recipe.name,
        about=recipe.about,
        target=recipe.target,
        unit=recipe.unit,
        bytes_per_token=recipe.bytes_per_token,
        knobs=dict(recipe.knobs),
        status="running",
        parameters=0,
        device="",
        torch_version=str(torch.__version__),
        threads=torch.get_num_threads(),
        settings=settings_of(recipe),
        source_digest=source_digest(source),
        module_digests=module_digests(source) if source else {},
        layout=layout,
        environment=environment(),
        determinism=deterministic.in_force(),
    )
    if source is not None:
        write_whole(run.source, source.read_bytes())
    write_run(run)
    return run


def old_run(recipe: Recipe, folder: Path, *, accept_change: bool, layout: str = "1 rank") -> Run:
    """Returns the run in a directory, as it resumes. Raises if this recipe may not resume it.

    On other ranks or with other sharding it counts as a new attempt: repeated steps may differ by rounding.
    """
    run, source = read_run(folder), source_of(recipe)
    digest, modules = source_digest(source), module_digests(source) if source else {}
    changes = list(changes_since(run, recipe))
    if run.source_digest != digest:
        changes.append(f"the code in {source} has changed (its copy: {run.source})")
    changes += [f"the code in {name}, which the recipe imports, {how}" for name, how in changed_modules(run, modules)]
    if changes and not accept_change:
        raise RunError(
            f"{folder} holds a run of another recipe: {'; '.join(changes)}\n"
            "undo the change, name another directory, or accept the change (--accept-change)"
        )
    if run.failures >= FAILURES and not accept_change:
        raise RunError(
            f"{folder} failed {run.failures} times in a row without progress; the last time: {run.reason}\n"
            "fix the cause, then start it with --accept-change"
        )
    if run.status == "finished" and not changes:
        if not accept_change:
            refuse_lost_rows(run, upto=run.steps)
        return run
    return replace(
        run,
        status="running",
        starts=run.starts + 1,
        failures=0 if accept_change else run.failures,
        reason="",
        unsaved="",
        attempt=run.attempt + (accept_change or run.layout != layout),
        layout=layout,
        data_identity=None if accept_change else run.data_identity,  # None: hashed anew at this start
        evaluation_identity=None if accept_change else run.evaluation_identity,
        knobs=dict(recipe.knobs),
        settings=settings_of(recipe),
        source_digest=digest,
        module_digests=modules,
        determinism=deterministic.in_force(),
    )


def changed_modules(run: Run, modules: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The imported modules that have changed since the run began, and how."""
    for name in sorted({*run.module_digests, *modules}):
        before, now = run.module_digests.get(name), modules.get(name)
        if before != now:
            yield name, "is new" if before is None else "is missing" if now is None else "has changed"


def refuse_other_data(before: DataIdentity | None, now: DataIdentity, what: str) -> None:
    """Raises if the data differs from the data that the run began with."""
    if before is not None and not before.is_same(now):
        first = before.first_unlike(now)
        raise RunError(
            f"the {what} has changed since the run began: it was {before}, and is {now}{first and f'; {first}'}\n"
            "restore it, name another directory, or accept the change (--accept-change)"
        )


def refuse_lost_checkpoints(run: Run, *, left: int) -> None:
    """Raises if the run had saved checkpoints and all of them are gone."""
    if run.saved_step and not left:
        raise RunError(
            f"{run.checkpoints} holds no checkpoint, but the run saved step {run.saved_step}: somebody deleted it\n"
            "restore it, name another directory for a new run, or start again from step 0 in this one "
            "(--accept-change)"
        )


def refuse_lost_rows(run: Run, *, upto: int) -> None:
    """Raises if the log lacks a step. Every row up to a checkpoint was on disk before the checkpoint was saved."""
    rows = list(read_rows(run.log)) if run.log.exists() else []
    missing = sorted((each for each in _missing_steps(run, rows, upto) if each), key=lambda each: each.start)
    if missing:  # a damaged record may name any number of steps, so they are counted without being listed
        count = sum(each.stop - each.start for each in missing)
        first = islice(chain.from_iterable(missing), 5)
        named = ", ".join(map(str, first)) + (", ..." if count > 5 else "")
        state = (
            "is missing"
            if not run.log.exists()
            else f"has no row, or a misplaced one, for {counted(count, 'step')}: {named}"
        )
        raise RunError(
            f"{run.log} {state}; without it nothing shows what the run was trained on\n"
            "restore it, name another directory, or resume without those rows (--accept-change)"
        )


def _missing_steps(run: Run, rows: Sequence[LogRow], upto: int) -> Iterator[range]:
    """The steps that a log lacks. A resume may go back to a checkpoint, but never forward.

    Rows that were missing when a change was accepted are not reported again: later rows belong to a new attempt.
    """
    last, attempt = 0, 0
    for row in rows:
        if row.attempt == attempt:
            yield range(last + 1, row.step)
        last, attempt = row.step, row.attempt
    if run.attempt == attempt:
        yield range(last + 1, upto + 1)


def changes_since(run: Run, recipe: Recipe) -> Iterator[str]:
    """Which settings have changed since the run began, in words."""
    if run.recipe != recipe.name:
        yield f"it is {run.recipe}, not {recipe.name}"
    before, now = {**run.knobs, **run.settings}, {**recipe.knobs, **settings_of(recipe)}
    for name in sorted({*before, *now} - _free(recipe) - LAYOUT):
        if before.get(name, _USUAL.get(name)) != now.get(name):
            was, given = (repr(each[name]) if name in each else "not given" for each in (before, now))
            noted = name == "global_batch_tokens" and before.get(name) is not None
            keep = f" (set it to {was} to keep the batches of the run on any number of ranks)" if noted else ""
            yield f"{name} was {was} and is {given}{keep}"
    if before.get("deterministic", False) == recipe.deterministic:
        yield from deterministic.changes(run.determinism, deterministic.in_force(), on_cuda=cuda.is_there())


def settings_of(recipe: Recipe) -> dict[str, Knob]:
    """The plain fields of a recipe."""
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    return {name: value for name, value in values.items() if isinstance(value, Knob) and name not in _free(recipe)}


def _free(recipe: Recipe) -> set[str]:
    return FREE - SELECTING if recipe.best is not None or recipe.schedules_itself else FREE


def source_digest(source: Path | None) -> str:
    """A digest of the code in a file; comments and layout do not count."""
    return "" if source is None else code_digest(source)


def environment() -> dict[str, str]:
    """Versions and hardware facts that results and speed may depend on."""
    packages = {name: version(name) for name in ("surefoot", "torch", "numpy")}
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": str(os.cpu_count())}
    return {**machine, **packages, "cuda": str(torch.version.cuda or "none")}


def _foreign(folder: Path) -> Iterator[Path]:
    """Files other than those that surefoot leaves if it is killed before its first file is complete."""
    ours = ("lock", "run.json", "recipe.py", "plan.json", "profile.json")
    return (path for path in folder.iterdir() if path.name.removeprefix(".").removesuffix(".part") not in ours)


def _fresh(folder: Path) -> Path:
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000))
    return folder if not folder.exists() else next(path for path in numbered if not path.exists())
