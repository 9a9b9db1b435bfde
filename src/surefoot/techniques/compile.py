"""Compile: torch.compile for each block, or for the whole model.

| `compile`        | compiled by `torch.compile`                                                     |
|------------------|---------------------------------------------------------------------------------|
| `off`, `False`   | nothing                                                                         |
| `blocks`         | the forward of each block: short to compile, since blocks of one class share it |
| `whole`, `True`  | the forward of the model                                                        |

`compile_mode` and `compile_dynamic` are torch's `mode` and `dynamic`. A model is compiled only where it is trained at
its real size: a plan and a check run it as it was written.
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
    """A place at which the compiler gave up and Python went on, and why."""

    where: str
    reason: str


def apply(model: nn.Module, recipe: Recipe) -> None:
    """Has the forward of the model, or of its blocks, compiled when it is first called. State keeps its names."""
    modules = [model] if recipe.compile == "whole" else [module for _, module in blocks_of(model)]
    if not modules:
        raise RecipeError(
            f"compile='blocks' needs blocks, and {type(model).__name__} has none; compile='whole' needs none"
        )
    for module in modules:
        module.forward = torch.compile(module.forward, mode=recipe.compile_mode, dynamic=recipe.compile_dynamic)


def units(model: nn.Module, recipe: Recipe) -> Callable[[str, str], str]:
    """Of a phase and a module's name, what runs there is compiled together with: a block, the model, or nothing.

    What runs outside all modules in backward may be the loss's, which is not compiled.
    """
    if recipe.compile == "whole":
        return lambda phase, module: "model" if module or phase in ("forward", "evaluate") else ""
    names = {name for name, _ in blocks_of(model)} if recipe.compile == "blocks" else set()

    @functools.cache
    def block(module: str) -> str:
        return module if module in names or not module else block(module.rpartition(".")[0])

    return lambda phase, module: block(module)


def graph_breaks(run: Callable[[], object]) -> tuple[GraphBreak, ...]:
    """The graph breaks of compiled code that `run` calls, each place once. Code is traced for it, not compiled."""
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
