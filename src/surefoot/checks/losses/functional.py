"""Watches losses whose gradients are taken by `torch.func` or `torch.autograd.grad`.

Tensors cannot be read inside the transforms of `torch.func`. They transform pure functions, so this observer first
calls the function once more with plain tensors and autograd. For a `vmap` it does so for the first samples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.autograd_graph import walk
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held, tensors
from surefoot.checks.engine.types import Args, Kwargs
from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.facts.losses import Loss
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.loop.loose_leaves import LooseLeaves
from surefoot.checks.losses.loss_calls import Losses
from surefoot.randomness import kept
from surefoot.torch_inside.modes import aside
from surefoot.torch_inside.patches import patch
from surefoot.trees import map_tensors

MOST_SAMPLES = 16
_MARK = "surefoot_transformed"


@dataclass(frozen=True)
class _Transformed:
    """A function and the arguments it is differentiated by."""

    function: Callable[..., Any]
    argnums: tuple[int, ...]
    has_aux: bool


class FunctionalLosses(Observer):
    """Follows gradients that no backward puts into `.grad`."""

    after = (Forwards, Losses, Gradients)

    def __init__(
        self, scene: Scene, calls: Forwards, losses: Losses, gradients: Gradients, leaves: LooseLeaves
    ) -> None:
        super().__init__(scene)
        self._calls, self._losses, self._gradients, self._loose = calls, losses, gradients, leaves
        self._asking = False
        self.derivatives = False
        """Some gradients were computed with a graph."""
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] | None = None

    def __enter__(self) -> FunctionalLosses:
        for name in ("grad", "grad_and_value"):
            self._follow_gradient(name)
        self._follow_vmap()
        self._follow_autograd()
        return self

    def _follow_autograd(self) -> None:
        asked = self.scene.failsafe.callback(self._asked)

        def make(plain: Callable[..., Any]) -> Callable[..., Any]:
            def followed(*args: Any, **kwargs: Any) -> Any:
                if self._asking:  # torch calls it again through the function mode
                    return plain(*args, **kwargs)
                self._asking = True
                try:
                    asked(*args, **kwargs)
                    return plain(*args, **kwargs)
                finally:
                    self._asking = False

            return followed

        self._entered.callback(patch(torch.autograd, "grad", make))

    def _asked(self, outputs: Any, inputs: Any, *_: object, create_graph: bool = False, **__: object) -> None:
        """Handles `torch.autograd.grad`. With a graph, the gradient is part of a loss, as in a gradient penalty."""
        if self.scene.phases.is_deaf:
            return
        self.scene.differentiated = True
        self._calls.derive(walk(list(tensors(outputs))).numbers)
        if create_graph:
            self.derivatives = True
            self.scene.numbered_apart |= not all(each.is_cpu for each in tensors(outputs))
            self._loose.note_inputs(tensors(inputs))
        if create_graph or self.scene.updating is not None:
            return
        losses, wanted = list(tensors(outputs)), list(tensors(inputs))
        if len(losses) == 1 and losses[0].dim() == 0 and any(each in self._parameters() for each in wanted):
            self.scene.bus.gradient_asked(losses[0], asked=True)

    def _follow_gradient(self, name: str) -> None:
        look = self.scene.failsafe.callback(self._look)

        def make(plain: Callable[..., Any]) -> Callable[..., Any]:
            def transform(function: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
                own = plain(function, argnums, has_aux)
                chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
                transformed = _Transformed(function, chosen, has_aux)

                @functools.wraps(own)
                def called(*args: object, **kwargs: object) -> Any:
                    look(transformed, [args], kwargs)
                    return own(*args, **kwargs)

                setattr(called, _MARK, transformed)
                return called

            return transform

        self._entered.callback(patch(torch.func, name, make))

    def _follow_vmap(self) -> None:
        look = self.scene.failsafe.callback(self._look)

        def make(plain: Callable[..., Any]) -> Callable[..., Any]:
            def transform(function: Callable[..., Any], in_dims: Any = 0, *args: Any, **kwargs: Any) -> Any:
                own = plain(function, in_dims, *args, **kwargs)
                transformed = getattr(function, _MARK, None)

                @functools.wraps(own)
                def called(*args: object, **kwargs: object) -> Any:
                    if transformed is not None:
                        look(transformed, _samples(args, in_dims), kwargs)
                    return own(*args, **kwargs)

                return called

            return transform

        for owner in (torch.func, torch):
            self._entered.callback(patch(owner, "vmap", make))

    def _look(self, transformed: _Transformed, samples: Any, kwargs: Kwargs) -> None:
        """Calls the function for some samples and publishes the mean of its values."""
        if self.scene.phases.is_deaf or not self.scene.close or self._buffers is not None:
            return
        forwards, losses = len(self._calls.forwards), len(self._losses.losses)
        values = []
        try:
            with self._untraced(), torch.enable_grad():
                for args in samples:
                    args = [self._leaves(each) if n in transformed.argnums else each for n, each in enumerate(args)]
                    value = transformed.function(*args, **kwargs)
                    values.append(value[0] if transformed.has_aux else value)
        except (RuntimeError, TypeError, ValueError):
            values = []  # it only works inside its transform
        self._calls.leave_out(forwards + 1)
        self._losses.losses[losses:] = _joined(self._losses.losses[losses:])
        if values and all(isinstance(each, torch.Tensor) and each.dim() == 0 for each in values):
            self.scene.bus.gradient_asked(torch.stack(values).mean() if len(values) > 1 else values[0], asked=True)

    def model_called(self, model: nn.Module, args: Args) -> None:
        if self._buffers is not None:
            with aside():
                self._buffers += [(each, each.clone()) for each in model.buffers()]

    @contextmanager
    def _untraced(self) -> Iterator[None]:
        """Restores random states and buffers afterwards."""
        self._buffers = []
        try:
            with kept(devices=()):
                yield
        finally:
            with aside():
                for buffer, before in self._buffers:
                    buffer.copy_(before)
            self._buffers = None

    def _parameters(self) -> set[torch.Tensor]:
        made = {each for optimizer in self._gradients.made for each in held(optimizer)}
        return made | self.scene.optimized() | set(self.scene.names())

    def _leaves(self, tree: object) -> Any:
        """Replaces the values to differentiate by: with the parameters that hold them, or with new leaves."""
        own = {(each.data_ptr(), each.shape): each for each in self._parameters() if each.requires_grad}

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            known = own.get((tensor.data_ptr(), tensor.shape))
            return tensor.detach().requires_grad_() if known is None else known

        return map_tensors(leaf, tree)

    def facts(self) -> Iterator[GradientFacts]:
        yield GradientFacts(derivatives_in_losses=self.derivatives)


def _samples(args: Args, dims: Any) -> Iterator[Args]:
    """The arguments of the first samples of a `vmap`."""
    each = (dims,) * len(args) if isinstance(dims, int) else tuple(dims)
    sizes = [size for arg, dim in zip(args, each, strict=True) for size in _sizes(arg, dim)]
    for sample in range(min(MOST_SAMPLES, *sizes, MOST_SAMPLES) if sizes else 0):
        yield tuple(_of_sample(arg, dim, sample) for arg, dim in zip(args, each, strict=True))


def _sizes(tree: object, dim: Any) -> list[int]:
    return [each.shape[dim] for each in tensors(tree)] if isinstance(dim, int) else []


def _of_sample(tree: object, dim: Any, sample: int) -> Any:
    return map_tensors(lambda each: each.select(dim, sample), tree) if isinstance(dim, int) else tree


def _joined(losses: list[Loss]) -> list[Loss]:
    """Merges the losses of single samples into one loss per line, as if they were a batch."""
    HOST.settle()
    by_line: dict[tuple[str, int], list[Loss]] = {}
    for each in losses:
        by_line.setdefault((each.function, each.site), []).append(each)
    return [one[0] if len(one) == 1 else _batch(one) for one in by_line.values()]


def _batch(losses: list[Loss]) -> Loss:
    values = [each.value for each in losses if each.value is not None]
    constants = {each.constant for each in losses}
    return replace(
        losses[0],
        shape=(len(losses), *losses[0].shape[1:]),
        value=sum(values) / len(values) if values else None,
        probabilities=all(each.probabilities for each in losses),
        log_probabilities=all(each.log_probabilities for each in losses),
        targets=sum(each.targets for each in losses),
        valid=sum(each.valid for each in losses),
        distinct=max(len(constants), *(each.distinct for each in losses)),
        constant=next(iter(constants)) if len(constants) == 1 else None,
        counts=tuple(map(sum, zip(*(each.counts for each in losses), strict=False))),
    )
