"""train: takes the steps, in one process, and keeps a run directory."""

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import torch
from safetensors.torch import save_model

from surefoot.data.batches import batches_of
from surefoot.errors import NonFiniteLoss, RecipeError, RunError
from surefoot.load import source_of
from surefoot.recipe import Recipe
from surefoot.records.log import LogRow, append_row
from surefoot.records.run import Run, write_run
from surefoot.step import Step
from surefoot.world import World


def train(recipe: Recipe, *, path: str | None = None, tell: Callable[[Run, LogRow], None] | None = None) -> Run:
    """Trains to `max_steps` or `max_tokens` and returns the finished run. `tell` hears of every step."""
    if recipe.steps() is None:
        raise RecipeError(f"{recipe.name} does not say when to stop; set max_steps or max_tokens")
    world = World()
    with torch.random.fork_rng(), world:
        step = Step(recipe, world)
        run = _open(recipe, step, path)
        try:
            run = _take_steps(recipe, world, step, run, tell)
            save_model(step.model, str(run.weights))
        except BaseException as error:
            write_run(replace(run, status="failed", reason=f"{type(error).__name__}: {error}"))
            raise
    run = replace(run, status="finished")
    write_run(run)
    return run


def _take_steps(recipe: Recipe, world: World, step: Step, run: Run, tell: Callable[[Run, LogRow], None] | None) -> Run:
    batches = batches_of(recipe)
    with run.log.open("a", encoding="utf-8") as log:
        for number in range(1, (recipe.steps() or 0) + 1):
            began, lr = time.perf_counter(), step.optimizer.param_groups[0]["lr"]
            outcome = step(world.take(batches) for _ in range(recipe.micro_batches()))
            row = LogRow(
                step=number,
                loss=outcome.loss.item(),
                grad_norm=None if outcome.grad_norm is None else outcome.grad_norm.item(),
                lr=lr,
                tokens=recipe.tokens_per_step,
                seconds=time.perf_counter() - began,
            )
            append_row(log, row)
            if not math.isfinite(row.loss):
                raise NonFiniteLoss(f"the loss of step {number} is {row.loss}; weights were not saved; see {run.log}")
            run = replace(
                run,
                steps=number,
                tokens=run.tokens + row.tokens,
                seconds=run.seconds + row.seconds,
                first_loss=row.loss if run.first_loss is None else run.first_loss,
                last_loss=row.loss,
            )
            if tell is not None:
                tell(run, row)
    return run


def _open(recipe: Recipe, step: Step, path: str | None) -> Run:
    """A fresh run directory. A directory that holds anything is left alone."""
    folder = Path(path) if path else _fresh(Path("runs") / f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty; name another directory for this run")
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(
        path=str(folder),
        recipe=recipe.name,
        about=recipe.about,
        target=recipe.target,
        knobs=dict(recipe.knobs),
        status="running",
        parameters=step.parameter_count,
        device=str(step.device),
        torch_version=torch.__version__,
    )
    source = source_of(recipe)
    if source is not None:
        shutil.copyfile(source, run.source)
    write_run(run)
    return run


def _fresh(folder: Path) -> Path:
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000))
    return folder if not folder.exists() else next(path for path in numbered if not path.exists())
