"""Nonfinite: finds where the first NaN or infinity of a step came from, by repeating the step without its update."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from surefoot.debug.errors.nonfinite_operation import NonfiniteOperation
from surefoot.records.finding import Finding
from surefoot.step import Step
from surefoot.trees import local_part, tensors_in

_WHY = "An update with numbers that are not finite makes every weight NaN, and the run cannot recover from that."


def first_nonfinite(step: Step, batches: Iterable[tuple[list[int], Any]]) -> Finding | None:
    """Names the module and the samples that first produce NaN or infinity in this step. None if none do.

    All ranks check their own samples, in lockstep, and return the same finding.
    """
    for micro_batch, (samples, batch) in enumerate(batches):
        found = _forward_and_backward(step, micro_batch, batch)
        finders = [rank for rank, (has_found,) in enumerate(step.world.gather([bool(found)])) if has_found]
        if finders:
            rank = f", rank {step.world.rank}" if step.world.ranks > 1 else ""
            finding = Finding(
                check="nonfinite",
                severity="error",
                seen=found,
                where=f"step {step.number + 1}{rank}, micro-batch {micro_batch + 1}, samples {_few(samples)}",
                why=_WHY,
                remedy=_remedy(step),
            )
            return step.world.hand_out(finding, finders[0])
    return None


def _forward_and_backward(step: Step, micro_batch: int, batch: Any) -> str:
    """Describes the first non-finite value. Empty if there is none."""
    seen: list[str] = []
    if not all(map(_finite, tensors_in(batch))):
        seen.append("The batch itself holds numbers that are not finite.")
    if _anywhere(step, seen):
        return "".join(seen)
    names = {module: f"`{name}` ({type(module).__name__})" for name, module in step.model.named_modules()}

    def after_forward(module: nn.Module, _: Any, result: Any) -> None:
        if module not in names:
            return
        for tensor in tensors_in(result):
            if not _finite(tensor):
                seen.append(f"{names[module]} is the first module whose result is not finite.")
            elif tensor.requires_grad:
                tensor.register_hook(lambda gradient, name=names[module]: after_backward(name, gradient))

    def after_backward(name: str, gradient: torch.Tensor) -> None:
        if not _finite(gradient):
            seen.append(f"The gradient that reaches the result of {name} is the first that is not finite.")

    with ExitStack() as hooks:
        hooks.callback(register_module_forward_hook(after_forward).remove)
        operation = NonfiniteOperation()
        with nullcontext() if step.compiled else operation:
            loss, count = step.loss_of(micro_batch, batch)
        if seen:
            seen[0] += operation.sentence()
        if not seen and not _finite(loss / count):
            said = "Every module's result is finite, so the NaN or infinity comes from the loss function."
            seen.append(said + operation.sentence())
        anywhere = _anywhere(step, seen)
        if not anywhere:
            step.scaler.scale(loss / count).backward()
    if not anywhere and not seen:
        seen += [
            f"The gradient of the parameter `{name}` is not finite."
            for name, parameter in step.model.named_parameters()
            if parameter.grad is not None and not _finite(parameter.grad)
        ]
    return seen[0] if seen else ""


def _anywhere(step: Step, seen: list[str]) -> bool:
    """Whether any rank has found something. Ranks compute together, so all must stop at the same place."""
    return any(has_seen for (has_seen,) in step.world.gather([bool(seen)]))


def _finite(tensor: torch.Tensor) -> bool:
    tensor = local_part(tensor)
    return not tensor.dtype.is_floating_point or bool(torch.isfinite(tensor).all())


def _few(samples: list[int]) -> str:
    shown = ", ".join(map(str, samples[:8]))
    return shown if len(samples) <= 8 else f"{shown}, ... ({len(samples)} in all)"


def _remedy(step: Step) -> str:
    low = "" if step.recipe.precision in ("32-true", "bf16-mixed") else "try precision=bf16-mixed; "
    clip = "" if step.recipe.max_grad_norm else "set max_grad_norm=1.0; "
    return f"Look at those samples; then {low}{clip}lower the learning rate, or skip such updates: nonfinite=skip."
