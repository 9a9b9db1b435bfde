"""Calls the recipe's own functions after logged steps and evaluations. They cannot change the training."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from surefoot.errors import RecipeError, RunError
from surefoot.randomness import kept
from surefoot.recipe.recipe import RunSoFar
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from surefoot.source.owners import owner
from surefoot.step import Step, model_of
from surefoot.torch_inside.autograd import writes
from surefoot.training.current_run import CurrentRun
from surefoot.training.reactions.reaction import TakenStep


class Callbacks:
    """Calls `on_step` and `on_evaluation` on rank 0. One that raises is reported once, and called again next time."""

    def __init__(self, step: Step, current: CurrentRun) -> None:
        recipe = step.recipe
        first = step.world.rank == 0
        self._step, self._current = step, current
        self._on_step, self._on_evaluation = (recipe.on_step, recipe.on_evaluation) if first else (None, None)
        self._reported: set[tuple[str, str]] = set()

    def after_step(self, taken: TakenStep) -> None:
        run, row = self._current.run, taken.row
        if self._on_step is not None:
            self._call("on_step", self._on_step, run, row)
        if self._on_evaluation is not None and (row.evaluation_loss is not None or row.metrics):
            self._call("on_evaluation", self._on_evaluation, run, row)

    def _call(self, name: str, function: Callable[[RunSoFar, LogRow], object], run: Run, row: LogRow) -> None:
        recipe = self._step.recipe
        so_far = RunSoFar(
            Path(run.path), row.step, recipe.steps() or 0, recipe, run.best_step, partial(_copy, self._step)
        )
        copied = replace(row, metrics=dict(row.metrics), train_metrics=dict(row.train_metrics))
        with _undisturbed(self._step, name):
            try:
                function(so_far, copied)
            except Exception as error:
                self._report(name, row.step, error)

    def _report(self, name: str, step: int, error: Exception) -> None:
        file, line = _place(error)
        if (name, f"{file}:{line}") in self._reported:
            return
        self._reported.add((name, f"{file}:{line}"))
        said = f"{name} failed after step {step}, and the run continues: {type(error).__name__}: {error}"
        self._current.event("callback-failed", f"{said} ({Path(file).name}:{line})")
        warnings.warn_explicit(said, RuntimeWarning, file, line)


def _copy(step: Step) -> nn.Module:
    """A new model with the weights of this step, averaged if the recipe averages them."""
    if step.layout.shards or step.layout.tp > 1:
        raise RunError(f"run.model() needs the whole model on one rank, and here it is split: {step.layout}")
    made = model_of(step.recipe, step.layout, step.device)
    made.load_state_dict(step.model.state_dict())
    if step.ema is not None:
        step.ema.copy_to(dict(made.named_parameters()))
    return made.eval()


def _place(error: Exception) -> tuple[str, int]:
    """The innermost line of the user's code: outside of surefoot and of installed packages, if there is one."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [each for each in frames if owner(each.filename) not in ("installed", "surefoot")]
    last = (own or frames or traceback.extract_tb(error.__traceback__))[-1]
    return last.filename, last.lineno or 0


@contextmanager
def _undisturbed(step: Step, name: str) -> Iterator[None]:
    """Puts back everything that the next step depends on. Raises if a tensor of the training was written."""
    model, groups = step.model, step.optimizer.param_groups
    modes = {module: module.training for module in model.modules()}
    trained = {each: (each.requires_grad, each.grad) for each in model.parameters()}
    settings = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    written = {key: writes(tensor) for key, tensor in _tensors(step).items()}
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        with kept():
            yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        for module, mode in modes.items():
            module.training = mode
        for parameter, (requires_grad, gradient) in trained.items():
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        for group, before in zip(groups, settings, strict=True):
            group.update(before)
    changed = [key for key, tensor in _tensors(step).items() if writes(tensor) != written.get(key)]
    if changed:
        raise RecipeError(
            f"{name} wrote to {', '.join(changed[:3])}, which is being trained: a callback only looks; "
            "use run.model(), a copy, or write the update yourself (step=)"
        )


def _tensors(step: Step) -> dict[str, torch.Tensor]:
    """The parameters, buffers and optimizer state of a training, by name."""
    named = [*step.model.named_parameters(), *step.model.named_buffers()]
    names = {parameter: name for name, parameter in named}
    state = {
        f"the optimizer's {key} of {names.get(parameter, 'a parameter')}": value
        for parameter, values in step.optimizer.state.items()
        if isinstance(values, dict)
        for key, value in values.items()
        if isinstance(value, torch.Tensor)
    }
    averages = {} if step.ema is None else {f"the average of {name}": each for name, each in step.ema.tensors.items()}
    return {**dict(named), **state, **averages}
