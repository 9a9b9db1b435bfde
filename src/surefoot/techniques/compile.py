"""Compile: torch.compile for each block, or for the whole model.

| `compile`        | compiled by `torch.compile`                                                     |
|------------------|---------------------------------------------------------------------------------|
| `off`, `False`   | nothing                                                                         |
| `blocks`         | the forward of each block: quick, since blocks of one class share the result    |
| `whole`, `True`  | the forward of the model                                                        |

`compile_mode`, `compile_dynamic` and `fullgraph` are torch's `mode`, `dynamic` and `fullgraph`. A model is compiled
only to train it at its real size: a plan and a check run it as it was written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.techniques.recompute import blocks_of


@dataclass(frozen=True)
class GraphBreak:
    """A place where the compiler gave up and Python took over, and why."""

    where: str
    reason: str


def apply(model: nn.Module, recipe: Recipe) -> None:
    """Compiles the forward of the model, or of its blocks, at the first call. Names in the state_dict stay the same."""
    modules = [model] if recipe.compile == "whole" else [module for _, module in blocks_of(model)]
    if not modules:
        raise RecipeError(f"compile='blocks' needs blocks, and {type(model).__name__} has none; use compile='whole'")
    for module in modules:
        module.forward = torch.compile(
            module.forward, mode=recipe.compile_mode, dynamic=recipe.compile_dynamic, fullgraph=recipe.fullgraph
        )


def units(model: nn.Module, recipe: Recipe, *, unless: str = "") -> Callable[[str, str], str]:
    """A function of phase and module name that returns the unit of compilation: a block, the model, or nothing.

    An operator outside all modules in backward belongs to the loss: it is compiled only if the model computes the loss
    itself. `unless` ends the name of a unit for which that must be seen first.
    """
    if recipe.compile == "whole":
        return lambda phase, module: (
            "model"
            if module or phase in ("forward", "evaluate")
            else f"model{unless}"
            if unless and phase == "backward"
            else ""
        )
    names = {name for name, _ in blocks_of(model)} if recipe.compile == "blocks" else set()

    @functools.cache
    def block(module: str) -> str:
        return module if module in names or not module else block(module.rpartition(".")[0])

    return lambda phase, module: block(module)


def graph_breaks(run: Callable[[], object]) -> tuple[GraphBreak, ...]:
    """The graph breaks of compiled code that `run` calls, each place once. The code is only traced, not compiled."""
    found: dict[GraphBreak, None] = {}

    def look(graph: Any, inputs: Any) -> Callable[..., Any]:
        why = graph.compile_subgraph_reason
        if why.graph_break:
            frame = why.user_stack[-1]
            found[GraphBreak(f"{frame.filename}:{frame.lineno}", why.reason.splitlines()[0])] = None
        return graph.forward

    with torch.compiler.set_stance(force_backend=look):
        run()
    return tuple(found)
