"""A recipe as a script that can be probed: its steps on batches of a plain loader, and its evaluation.

Started as `recipe_loop.py TARGET KNOBS`, by `surefoot check RECIPE --probe`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from surefoot.recipe.build import build_data, build_evaluation
from surefoot.recipe.load import load_recipe
from surefoot.recipe.recipe import Recipe
from surefoot.step import Step
from surefoot.world.world import World


def main(target: str, *knobs: str) -> None:
    """Trains for the steps of the recipe, pass after pass, and evaluates after each."""
    recipe = load_recipe(target, list(knobs))
    recipe = replace(recipe, seed=recipe.seed + torch.initial_seed())  # a rerun with another seed has set it
    step = Step(recipe, World())
    train = _loader(recipe, build_data(recipe), shuffles=True)
    held_out = None if recipe.evaluation is None else _loader(recipe, build_evaluation(recipe), shuffles=False)
    last = recipe.steps()
    while last is None or step.number < last:
        before = step.number
        batches = iter(train)
        while (last is None or step.number < last) and (some := list(islice(batches, step.micro_batches))):
            step(step.world.take(iter(some)) for _ in range(len(some)))
        if step.number == before:
            break
        if held_out is not None:
            _tell(step, held_out)


def _loader(recipe: Recipe, data: Any, *, shuffles: bool) -> DataLoader[Any]:
    shuffles = shuffles and not isinstance(data, IterableDataset)
    return DataLoader(data, batch_size=recipe.micro_batch_size, shuffle=shuffles, collate_fn=recipe.collate)


def _tell(step: Step, held_out: DataLoader[Any]) -> None:
    scores = step.evaluate(step.world.take(iter([batch])) for batch in held_out)
    if scores.loss is not None:
        print(f"held-out loss {float(scores.loss):.6g}")
    for name, value in scores.metrics.items():
        print(f"held-out {name} {float(value):.6g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
