"""One call of a network with real inputs, as the recipe's loss makes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.data.batches import batches_of
from surefoot.errors import RunError
from surefoot.finetuning.documents import as_matrix
from surefoot.recipe.recipe import Recipe
from surefoot.techniques import own_step
from surefoot.techniques.precision import inputs_in
from surefoot.trees import map_tensors, tensors_in
from surefoot.world.world import World

BATCH = 0
"""Stands for the size of the batch, which may also be the size of another dimension."""


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a network: nested tuples, lists and dicts of tensors and plain values."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def of(self, model: torch.nn.Module) -> Any:
        """What the model returns."""
        return model(*self.args, **self.kwargs)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in order."""
        return list(tensors_in((self.args, self.kwargs)))

    @property
    def batch_size(self) -> int:
        """The first dimension of the first tensor."""
        return next((each.shape[0] for each in self.tensors if each.dim()), 0)

    def bound(self, model: torch.nn.Module) -> dict[str, Any]:
        """The arguments by the names of the network's parameters."""
        return dict(inspect.signature(model.forward).bind(*self.args, **self.kwargs).arguments)

    def kind(self, tensor: torch.Tensor, dim: int) -> int:
        """Dimensions of one kind change together: those of the batch, and others by their size."""
        return BATCH if dim == 0 and tensor.shape[0] == self.batch_size else tensor.shape[dim]

    def cut(self, *kinds: int) -> Call:
        """The same call with other sizes: a batch of one, and half of each other size of these kinds."""
        return self._resized({kind: 1 if kind == BATCH else 3 if kind == 2 else max(2, kind // 2) for kind in kinds})

    def with_two_rows(self) -> Call:
        """The same call with its batch repeated up to two rows."""
        return self._resized({BATCH: 2})

    def _resized(self, sizes: Mapping[int, int]) -> Call:
        """The same call with the sizes of some kinds replaced. What it lacks is repeated."""

        def resized(tensor: torch.Tensor) -> torch.Tensor:
            for dim, kind in enumerate([self.kind(tensor, dim) for dim in range(tensor.dim())]):
                if kind in sizes:
                    places = torch.arange(sizes[kind], device=tensor.device) % tensor.shape[dim]
                    tensor = tensor.index_select(dim, places)
            return tensor

        return Call(map_tensors(resized, self.args), map_tensors(resized, self.kwargs))

    def texts(self) -> tuple[str, ...]:
        """Each tensor with its name, number format and shape."""
        named = [("", each) for each in self.args] + list(self.kwargs.items())
        return tuple(
            f"{name and name + ' '}{str(each.dtype).removeprefix('torch.')}{list(each.shape)}"
            for name, tree in named
            for each in tensors_in((tree,))
        )


@contextmanager
def keywords_named(model: torch.nn.Module, call: Call) -> Iterator[None]:
    """While it lasts, what a call passes to the `**kwargs` of a network are parameters with names.

    torch.export raises for free sizes in `**kwargs`, as of the models of peft.
    """
    forward = model.forward
    signature = inspect.signature(forward)
    parameters = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
        for name in call.kwargs
        if name not in signature.parameters
    ]

    def named_forward(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    if not named:
        yield
        return
    named_forward.__signature__ = signature.replace(parameters=[*parameters, *named])  # type: ignore[attr-defined]
    had = "forward" in vars(model)
    model.forward = named_forward
    try:
        yield
    finally:
        if had:
            model.forward = forward
        else:
            del model.forward


class _Called(Exception):
    """The network was called: its inputs are known."""


def example_call(recipe: Recipe, whole: torch.nn.Module, model: torch.nn.Module, world: World) -> Call:
    """The first call of a network in the recipe's loss, or in its own step, on the first batch."""
    return call_on(world.take(batches_of(recipe)), recipe, whole, model)


def call_on(batch: Any, recipe: Recipe, whole: torch.nn.Module, model: torch.nn.Module) -> Call:
    """The same on this batch, recorded by a hook."""
    taken: list[Call] = []

    def called(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        taken.append(Call(args, kwargs))
        raise _Called

    hook = model.register_forward_pre_hook(called, with_kwargs=True)
    batch = inputs_in(recipe.precision, batch)
    try:
        with as_matrix():
            if recipe.step is not None:
                optimizers = own_step.optimizers_of(recipe.optimizer(whole), recipe.name)
                with torch.enable_grad():
                    recipe.step(whole, own_step.handed_out(optimizers), batch)
            elif recipe.loss is not None:
                recipe.loss(whole, batch)
    except _Called:
        pass
    finally:
        hook.remove()
    if not taken:
        raise RunError("the loss does not call the network itself, so surefoot does not know the inputs of its program")
    return Call(_plain(taken[0].args), _plain(taken[0].kwargs))


def _plain(tree: Any) -> Any:
    """Dict subclasses, such as the batches of tokenizers, as dicts: a program can be called without their classes.

    Tensors that are windows into larger ones become copies of their own: torch.export would expect the gaps again.
    """
    if isinstance(tree, Mapping):
        return {name: _plain(item) for name, item in tree.items()}
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        return type(tree)(_plain(item) for item in tree)
    return tree.detach().clone() if isinstance(tree, torch.Tensor) else tree
