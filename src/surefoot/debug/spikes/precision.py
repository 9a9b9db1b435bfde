"""Computes a step in float32, and finds the one module that must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from surefoot.debug.spikes.measure import loss_on
from surefoot.step import Step
from surefoot.training.replay import Numbered

Ordinary = Callable[[Step], bool]
"""Whether the loss of a step is ordinary."""


def in_float32(step: Step, *, modules: list[str] | None = None) -> Step:
    """A step with the same values that computes in float32, everywhere or in some modules."""
    recipe = step.recipe
    if modules is None:
        changed = replace(recipe, precision="32-true", float32=None)
    else:
        already = [str(recipe.float32)] if recipe.float32 else []
        changed = replace(recipe, float32=",".join([*already, *modules]))
    made = Step(changed, step.world)
    there = dict((*made.model.named_parameters(), *made.model.named_buffers()))
    with torch.no_grad():
        for name, value in (*step.model.named_parameters(), *step.model.named_buffers()):
            there[name].copy_(value)
    made.number = step.number
    return made


def guilty_module(step: Step, batches: Sequence[Numbered], is_ordinary: Ordinary) -> str:
    """The innermost module that makes the loss ordinary if it alone computes in float32; empty if none does.

    What a module in float32 returns stays in float32, so one that is called earlier may suffice too. The last counts.
    """
    found, called = "", _called(step, batches)
    while True:
        deeper = _last_of(_inside(called, found), lambda names: is_ordinary(in_float32(step, modules=names)))
        if not deeper:
            return found
        found = deeper


def _last_of(names: list[str], suffice: Callable[[list[str]], bool]) -> str:
    """The last name that suffices alone, by bisection; empty if it takes several."""
    if not names or not suffice(names):
        return ""
    while len(names) > 1:
        halves = names[len(names) // 2 :], names[: len(names) // 2]
        names = next((half for half in halves if suffice(half)), [])
    return names[0] if names else ""


def _called(step: Step, batches: Sequence[Numbered]) -> list[str]:
    """The names of the modules that a forward calls, in that order."""
    names = {module: name for name, module in step.model.named_modules()}
    seen: dict[str, None] = {}

    def note(module: nn.Module, _: Any) -> None:
        if names.get(module):
            seen.setdefault(names[module])

    hook = register_module_forward_pre_hook(note)
    try:
        loss_on(step, batches[:1])
    finally:
        hook.remove()
    return list(seen)


def _inside(called: list[str], outer: str) -> list[str]:
    """The called modules inside one, without those inside of others in it."""
    under = [name for name in called if name.startswith(f"{outer}." if outer else "") and name != outer]
    return [name for name in under if not any(name.startswith(f"{other}.") for other in under)]
