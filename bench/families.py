"""Families of recipes from the shapes of real projects, in two halves: one to tune the planner on, one held out.

A family is a file: `families_<family>.py` if the planner is tuned on it, `families_held_out_<family>.py` if it is held
out. The held-out recipes were written separately, without reading the planner and without planning any of them. No
family of one side shares its subject with a family of the other. `control`, `forecasting`, `neural_fields` and
`self_supervised` were held out until 19 November 2026, when the planner was mended for them.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from surefoot import Recipe

SIDES: dict[str, tuple[str, ...]] = {
    "tuning": (
        "audio",
        "control",
        "diffusers",
        "forecasting",
        "layerdrop",
        "neural_fields",
        "odes",
        "periodic_optimizers",
        "self_supervised",
        "streams",
        "structured",
        "text_rl",
        "trees",
        "vision_language",
    ),
    "held_out": (
        "adversarial",
        "click_models",
        "densities",
        "linear_sequences",
        "points",
        "second_order",
    ),
}


@dataclass(frozen=True)
class Shape:
    """A recipe, and how many real steps show all that it does."""

    build: Callable[[], Recipe]
    steps: int


SHAPES: dict[str, Shape] = {}


def family(name: str, *, steps: int = 4) -> Callable[[Callable[[], Recipe]], Callable[[], Recipe]]:
    """A decorator that adds a recipe under the names of its family and its function."""

    def add(build: Callable[[], Recipe]) -> Callable[[], Recipe]:
        SHAPES[f"{name}/{build.__name__}"] = Shape(build, steps)
        return build

    return add


def load(side: str) -> None:
    """Reads the files of one side, or of both."""
    for each in SIDES if side == "all" else (side,):
        for name in SIDES[each]:
            importlib.import_module(f"families_held_out_{name}" if each == "held_out" else f"families_{name}")


def case_names(side: str) -> list[str]:
    load(side)
    names = set().union(*(SIDES[each] for each in (SIDES if side == "all" else (side,))))
    return [case for case in SHAPES if case.partition("/")[0] in names]


def shape_of(case: str) -> Shape | None:
    """The recipe of a case; None if it belongs to no family of these."""
    name = case.partition("/")[0]
    side = next((side for side, names in SIDES.items() if name in names), None)
    if side is None:
        return None
    load(side)
    return SHAPES[case]


def mlp(into: int, out: int, width: int = 128, depth: int = 2, act: Any = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number in range(depth):
        layers += [nn.Linear(into if number == 0 else width, width), act()]
    return nn.Sequential(*layers, nn.Linear(width, out))


class Samples(torch.utils.data.Dataset[Any]):
    """A data set of so many samples, each made from its number by a function of a generator."""

    def __init__(self, count: int, make: Callable[[random.Random], Any]) -> None:
        self.count, self.make = count, make

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(random.Random(index))
