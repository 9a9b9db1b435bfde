"""predict: what a trained classifier or regressor says of new inputs, one JSON line for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate

from surefoot.errors import DataError, RecipeError, SurefootError
from surefoot.exports.as_model import Program, program_of
from surefoot.exports.items import items_of
from surefoot.exports.source import Source, open_source
from surefoot.exports.trained import trained_model
from surefoot.randomness import kept
from surefoot.recipe.recipe import Recipe
from surefoot.records.predictions import Predictions
from surefoot.techniques import precision
from surefoot.world.world import World


def predict(
    path: str,
    inputs: str,
    recipe: str | Recipe | None = None,
    *,
    knobs: Iterable[str] = (),
    micro_batch_size: int | None = None,
    trust_run: bool = False,
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> Predictions:
    """Answers for each line of a `.jsonl` file, or for each file of a folder, in their order.

    `tell` receives each answer as plain data: `item` is the number of the line or the name of the file. `path` is a
    finished run, the folder of an export or one exported file. The recipe's `read` makes a sample of an input, its
    `collate` joins samples, and its `predict` says what the model answers.
    """
    source, world = open_source(path), World()
    with kept(), world, torch.no_grad():
        made_by = source.recipe(recipe, knobs, trust_run=trust_run)
        _refuse_without(made_by)
        model = _model(source, made_by, world, trust_run)
        count, began = 0, time.perf_counter()
        waiting = items_of(inputs)
        while group := list(islice(waiting, micro_batch_size or made_by.micro_batch_size)):
            for answer in _answers(made_by, model, world, inputs, group):
                count += 1
                if tell is not None:
                    tell(answer)
        seconds = time.perf_counter() - began
    return Predictions(str(path), str(source.file), str(inputs), made_by.name, count, seconds)


def _refuse_without(recipe: Recipe) -> None:
    missing = [name for name in ("read", "predict") if getattr(recipe, name) is None]
    if missing:
        raise RecipeError(
            f"{recipe.name} does not say how to predict: it has no {' and no '.join(missing)}; "
            "Recipe(read=...) makes a sample of an input, Recipe(predict=...) says what the model answers"
        )


def _model(source: Source, recipe: Recipe, world: World, trusted: bool) -> torch.nn.Module:
    if source.is_weights:
        return trained_model(recipe, world, source.file)
    return Program(program_of(source.file, trusted=trusted)).eval()


def _answers(
    recipe: Recipe, model: torch.nn.Module, world: World, inputs: str, group: list[tuple[str, Any]]
) -> Iterator[dict[str, Any]]:
    assert recipe.predict is not None
    samples = [_sample(recipe, inputs, name, item) for name, item in group]
    batch = world.take(iter([(recipe.collate or default_collate)(samples)]))
    with precision.autocast(recipe.precision, world.device):
        made = recipe.predict(model, precision.inputs_in(recipe.precision, batch))
    named = made if isinstance(made, Mapping) else {"answer": made}
    columns = {name: _column(recipe, name, values, len(group)) for name, values in named.items()}
    for place, (name, _) in enumerate(group):
        yield {"item": name, **{column: values[place] for column, values in columns.items()}}


def _sample(recipe: Recipe, inputs: str, name: str, item: Any) -> Any:
    assert recipe.read is not None
    try:
        return recipe.read(item)
    except SurefootError:
        raise
    except Exception as error:  # the recipe's own code, on an input that it does not expect
        where = item if isinstance(item, Path) else f"{inputs}, line {name}"
        raise DataError(f"{where}: {recipe.name} cannot read it: {type(error).__name__}: {error}") from error


def _column(recipe: Recipe, name: str, values: Any, count: int) -> list[Any]:
    """The answers of one name, one for each sample, as plain numbers, texts and lists."""
    plain = values.detach().float().tolist() if _is_narrow(values) else values
    plain = plain.tolist() if isinstance(plain, torch.Tensor) else plain
    if not isinstance(plain, list | tuple) or len(plain) != count:
        got = f"{len(plain)}" if isinstance(plain, list | tuple) else type(plain).__name__
        raise RecipeError(f"{recipe.name}: predict() must return one {name!r} for each of {count} samples, not {got}")
    return list(plain)


def _is_narrow(values: Any) -> bool:
    return isinstance(values, torch.Tensor) and values.dtype in (torch.bfloat16, torch.float16)
