"""Checks what a recipe's functions return, and says what is wrong."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Set
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset

from surefoot.errors import RecipeError
from surefoot.recipe.sources import made_into_source


def checked_model(made: Any, name: str, by: str = "model()") -> nn.Module:
    """Returns a module that has trainable parameters, or raises. A dict of networks becomes one module."""
    if isinstance(made, Mapping) and made and all(isinstance(each, nn.Module) for each in made.values()):
        made = nn.ModuleDict(made)
    if not isinstance(made, nn.Module):
        raise _wrong(f"{name}: {by}", made, "a torch.nn.Module")
    parameters = list(made.parameters())
    if not parameters:
        raise RecipeError(f"{name}: {by} returned {_kind(made)} without parameters: there is nothing to train")
    if not any(each.requires_grad for each in parameters):
        frozen = f"all {len(parameters)} of its parameters are frozen, with requires_grad=False"
        raise RecipeError(f"{name}: {by} returned {_kind(made)}, and {frozen}: there is nothing to train")
    return made


def checked_data(made: Any, name: str, again: Callable[[], Any]) -> Any:
    """Returns a data set with length and index, a stream, or a source of micro-batches, or raises.

    `name` says which function made it, and `again` calls that function once more.
    """
    if isinstance(made, IterableDataset):
        return made
    expected = (
        "a data set: `len(data)` samples, `data[number]`; or a torch IterableDataset or another iterable of samples; "
        "or a function `batch(number, size)`, or an object with that method"
    )
    if isinstance(made, DataLoader):
        raise _wrong(name, made, f"{expected}. Return its `.dataset`: surefoot makes the batches")
    if isinstance(made, Mapping | str | Set):  # a set has no order to begin again
        raise _wrong(name, made, expected)
    if not hasattr(type(made), "__getitem__"):
        source = made_into_source(made, name, again)
        if source is None:
            raise _wrong(name, made, expected)
        return source
    if not hasattr(type(made), "__len__"):
        raise RecipeError(f"{name} returned {_kind(made)}, which has no `__len__`; expected {expected}")
    if len(made) == 0:
        raise RecipeError(f"{name} returned {_kind(made)} without samples: the data set is empty")
    return made


def checked_optimizer(made: Any, name: str, *, closures: bool = False) -> torch.optim.Optimizer:
    """Returns an optimizer, or raises. Only a step of the recipe's own can use one that needs `closures`."""
    if isinstance(made, type) and issubclass(made, torch.optim.Optimizer):
        raise RecipeError(
            f"{name}: optimizer(parameters) returned the class {made.__name__}; call it with the parameters"
        )
    if not isinstance(made, torch.optim.Optimizer):
        several = (
            "; for several settings, give one optimizer several groups; for several optimizers, write step="
            if isinstance(made, list | tuple | Mapping)
            else ""
        )
        raise _wrong(f"{name}: optimizer(parameters)", made, f"one torch.optim.Optimizer{several}")
    if not closures and _wants_closure(made):
        raise RecipeError(
            f"{name}: {type(made).__name__} computes the loss several times in one update, through a closure; "
            "a recipe's step computes it once: use another optimizer, or write the update yourself (step=)"
        )
    return made


def _wants_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an update computes the loss again: `step` requires a closure, or there are two steps, as SAM has."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    required = closure is not None and closure.default is inspect.Parameter.empty
    return required or (hasattr(optimizer, "first_step") and hasattr(optimizer, "second_step"))


def checked_loss(made: Any, name: str) -> Any:
    """Returns a tensor of one number, or a sum and a count, or raises."""
    who = f"{name}: loss(model, batch)"
    total, count = made if isinstance(made, tuple) and len(made) == 2 else (made, 1)
    if not isinstance(total, torch.Tensor):
        hint = "; leave out .item()" if isinstance(total, numbers.Number) else ""
        raise _wrong(who, made, f"a tensor of one number, or a tuple of a sum and a count{hint}")
    if total.numel() != 1 or not total.dtype.is_floating_point:
        expected = "one floating-point number: a mean, or a tuple of a sum and a count"
        raise RecipeError(f"{who} returned a tensor of {_shape(total)}; it must be {expected}")
    if isinstance(count, torch.Tensor) and count.numel() != 1:
        raise RecipeError(f"{who} returned a count of {_shape(count)}; it must be one number")
    if not isinstance(count, torch.Tensor | numbers.Real):
        raise RecipeError(f"{who} returned {_kind(count)} as its count; it must be a number")
    return made


def checked_metrics(made: Any, name: str) -> Mapping[str, Any]:
    """Returns names with sums and counts, or torchmetrics objects, or raises."""
    who, expected = f"{name}: metrics(model, batch)", "a dict of names, each with a tuple of a sum and a count"
    if not isinstance(made, Mapping) or not made:
        raise _wrong(who, made, expected)
    for key, value in made.items():
        if not isinstance(key, str) or not key or key.startswith("-") or key == "loss":
            raise RecipeError(
                f"{who} returned a metric named {key!r}; a name is text other than 'loss', without - first"
            )
        if is_stateful(value):
            continue
        if not (isinstance(value, tuple) and len(value) == 2):
            raise _wrong(f"{who}[{key!r}]", value, "a tuple of a sum and a count, or a torchmetrics object")
        for each in value:
            one = isinstance(each, numbers.Real) or (isinstance(each, torch.Tensor) and each.numel() == 1)
            if not one:
                held = _shape(each) if isinstance(each, torch.Tensor) else _kind(each)
                raise RecipeError(f"{who}[{key!r}] holds {held}; sum and count must be one number each")
    return made


def is_stateful(metric: Any) -> bool:
    """Whether a metric is a torchmetrics object: it has a state that can be merged, and computes its value."""
    return callable(getattr(metric, "merge_state", None)) and callable(getattr(metric, "compute", None))


def checked_scheduler(made: Any, optimizer: torch.optim.Optimizer, name: str) -> LRScheduler:
    """Returns a scheduler of this optimizer, or raises."""
    if not isinstance(made, LRScheduler):
        raise _wrong(
            f"{name}: schedule(optimizer)",
            made,
            "a torch.optim.lr_scheduler; a function that returns a factor takes two things: schedule(step, steps)",
        )
    if made.optimizer is not optimizer:
        raise RecipeError(f"{name}: schedule(optimizer) returned a {type(made).__name__} of another optimizer")
    return made


def checked_factor(made: Any, step: int) -> Any:
    """Returns the factor of the learning rate, or raises."""
    if isinstance(made, torch.Tensor) and made.numel() == 1:
        made = made.item()
    if isinstance(made, bool) or not isinstance(made, numbers.Real):
        hint = "; to return a scheduler, take one thing: the optimizer" if isinstance(made, LRScheduler) else ""
        raise _wrong(f"schedule({step}, ...)", made, f"a number, the factor of the learning rate{hint}")
    if not 0 <= float(made) < math.inf:
        raise RecipeError(f"schedule({step}, ...) returned {made}; the factor of the learning rate is at least 0")
    return made


def _wrong(who: str, made: Any, expected: str) -> RecipeError:
    return RecipeError(f"{who} returned {_kind(made)}; expected {expected}")


def _shape(tensor: torch.Tensor) -> str:
    return f"shape {list(tensor.shape)} and {str(tensor.dtype).removeprefix('torch.')}"


def _kind(made: Any) -> str:
    if made is None:
        return "None; is a `return` missing?"
    if isinstance(made, type):
        return f"the class {made.__name__}"
    held = f" of {len(made)}" if isinstance(made, list | tuple | dict) else ""
    name = type(made).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}{held}"
