"""evaluate: loss and metrics of a trained model on all samples of its held-out or test data."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from surefoot.errors import RecipeError, RunError
from surefoot.exports.as_model import program_of, with_program, with_weights
from surefoot.exports.harness_tasks import check_tasks, task_scores
from surefoot.exports.in_transformers import as_folder
from surefoot.exports.other_text import scored_on
from surefoot.exports.scores import score_of, scores_on
from surefoot.exports.source import open_source
from surefoot.randomness import kept
from surefoot.recipe.build import build_data
from surefoot.recipe.recipe import Recipe
from surefoot.records.evaluation import Evaluation
from surefoot.step import Step
from surefoot.world.world import RealWorld

EVALUATION, TRAIN, TEST = "evaluation", "train", "test"
TASK_BATCH = 8
"""Texts of a task at a time."""


def evaluate(
    path: str,
    recipe: str | Recipe | None = None,
    *,
    knobs: Iterable[str] = (),
    data: str = EVALUATION,
    micro_batch_size: int | None = None,
    tasks: str | None = None,
    trust_run: bool = False,
) -> Evaluation:
    """The recipe's loss and metrics over each sample once, on one rank or on all that torchrun started.

    `path` is a finished run, the folder of an export, or one exported file. `data` is `evaluation`, `test`, the name of
    one of several test data, `train`, or a folder: text or tokens of the kind that the model learned.

    Losses are summed in float64, so neither the number of ranks nor the order of samples changes the result. Another
    micro-batch size changes it by the rounding of torch's kernels.

    `recipe` is the recipe of the run or export; one that a built-in recipe made needs none. `knobs` are those of a file
    that does not say how it was made.

    `tasks` is a task of lm-evaluation-harness in YAML, or a folder of them, in place of data. Then `path` may also be a
    Hugging Face folder. Another model is first written as one, and compared. A task that names code is refused, unless
    `trust_run`.
    """
    if tasks is not None:
        return _on_tasks(path, recipe, knobs, tasks, data, micro_batch_size, trust_run)
    began, source, world = time.perf_counter(), open_source(path), RealWorld()
    with kept(), world:
        made_by = source.recipe(recipe, knobs, trust_run=trust_run)
        if _is_folder(made_by, data):
            made_by = scored_on(made_by, data)
        names = _data(made_by, data)
        # No global batch: nothing is updated, and it may not divide into micro-batches of another size.
        scored = replace(
            made_by, micro_batch_size=micro_batch_size or made_by.micro_batch_size, global_batch_tokens=None
        )
        if data == TRAIN:
            scored = replace(scored, evaluation=lambda: build_data(made_by))
        if source.is_weights:
            step = Step(with_weights(scored, source.file), world)
        else:
            step = Step(with_program(scored, program_of(source.file, trusted=trust_run)), world)
        found = {name: scores_on(step, made_by, test) for name, test in names.items()}
    return Evaluation(
        source=str(path),
        file=str(source.file),
        recipe=made_by.name,
        knobs=dict(made_by.knobs),
        about=made_by.about,
        scores=tuple(score_of(made_by, name, *each) for name, each in found.items()),
        micro_batch_size=scored.micro_batch_size,
        ranks=world.ranks,
        device=str(world.device),
        seconds=time.perf_counter() - began,
        loss_is_mean=any(scores.is_mean for _, scores in found.values()),
    )


def _data(recipe: Recipe, data: str) -> dict[str, str | None]:
    """The data to score by name, each with its name among the test data."""
    tests = recipe.tests()
    if data == TRAIN or _is_folder(recipe, data) or (data == EVALUATION and recipe.evaluation is not None):
        return {data: None}
    if data == TEST and tests:
        return {name: name for name in tests}
    if data in tests:
        return {data: data}
    has = [*([EVALUATION] if recipe.evaluation else []), *([TEST] if tests else []), *(set(tests) - {TEST}), TRAIN]
    raise RecipeError(
        f"{recipe.name} has no {data} data; it has {', '.join(has)}, or name a folder of text: --data {has[0]}"
    )


def _is_folder(recipe: Recipe, data: str) -> bool:
    return data not in (EVALUATION, TRAIN, TEST, *recipe.tests()) and Path(data).is_dir()


def _on_tasks(
    path: str,
    recipe: str | Recipe | None,
    knobs: Iterable[str],
    tasks: str,
    data: str,
    micro_batch_size: int | None,
    trust_run: bool,
) -> Evaluation:
    if data != EVALUATION:
        raise RunError("tasks bring their own data; leave out --data")
    check_tasks(tasks, trusted=trust_run)
    began, size = time.perf_counter(), micro_batch_size or TASK_BATCH
    with kept(), torch.no_grad(), as_folder(path, recipe, knobs, trust_run=trust_run) as opened:
        scores = task_scores(tasks, opened.model, opened.tokenizer, batch_size=size, trusted=trust_run)
    return Evaluation(
        source=str(path),
        file=opened.file,
        recipe=opened.name,
        knobs=opened.knobs,
        about=opened.about,
        scores=scores,
        micro_batch_size=size,
        ranks=1,
        device=str(opened.model.device),
        seconds=time.perf_counter() - began,
    )
