"""Follows log-probabilities that a loop computes, and whether its backward raises or lowers them."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import distributions
from torch.distributions import Distribution
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import operation, squeezed, through_views
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.losses import Likelihood, LossFacts
from surefoot.checks.losses.policy_terms import PolicyTerms
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

_KEEPS = {
    "sum", "view", "reshape", "squeeze", "unsqueeze", "flatten", "stack", "cat", "exp", "sub", "__sub__", "clamp",
    "mean", "gather", "__getitem__", "float", "to", "transpose", "t", "div", "__truediv__",
}  # fmt: skip
"""The results of these rise when the log-probability rises."""
_TURNS = {"neg", "__neg__", "negative"}
_PRODUCTS = {"mul", "__mul__", "__rmul__", "multiply"}
_RAISED = re.compile(r"advantage|\badv\b|\badvs\b|reward|\breturns\b|_returns\b")
_LOWERED = re.compile(r"cost|length|regret|penalt|distance|delay|tour|neg|minus")
_IS_NEGATIVE = re.compile(r"-\s*[\w.]*\s*\*?\s*$")
_FEWEST = 4
_EVEN = 2e-2


class Likelihoods(Observer):
    """Checks that the likelihood of data rises, and that the likelihood of drawn samples rises with their reward."""

    reads = True
    waits = True

    def __init__(self, scene: Scene, policies: PolicyTerms) -> None:
        super().__init__(scene)
        self._policies = policies
        self.likelihoods: list[Likelihood] = []
        self._drawn: WeakNotes[None] = WeakNotes()
        self._logarithms: WeakNotes[int] = WeakNotes()
        """Log-probabilities and values computed from them: 1 if they rise together, -1 if not."""

    def __enter__(self) -> Likelihoods:
        for kind in vars(distributions).values():
            if isinstance(kind, type) and issubclass(kind, Distribution):
                for name in {"sample", "rsample"} & vars(kind).keys():
                    self.follow(kind, name, after=lambda out, *_, **__: self._drawn.put(tensors(out), None))
                if "log_prob" in vars(kind):
                    self.follow(kind, "log_prob", after=self._asked)
        return self

    def _looks(self) -> bool:
        return self.scene.close and torch.is_grad_enabled() and not self.scene.phases.in_model()

    def _asked(self, out: object, _: Distribution, value: object, *__: object, **___: object) -> None:
        if not self._looks() or not isinstance(out, torch.Tensor) or not out.requires_grad:
            return
        self._logarithms[out] = 1
        self._policies.acts |= value in self._drawn and not getattr(value, "requires_grad", True)
        if isinstance(value, torch.Tensor) and not value.requires_grad and value not in self._drawn:
            self._follow(out, 1, even=True)

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Recognises log-probabilities and their products with rewards."""
        if not self._looks() or not isinstance(out, torch.Tensor) or not out.requires_grad or not args:
            return
        name = getattr(function, "__name__", "")
        if operation(out.grad_fn) in ("LogSigmoid", "LogSigmoidForward") or _is_log_of_sigmoid(out):
            self._follow(out, 1, even=True)
        elif name == "gather" and operation(through_views(args[0].grad_fn)) == "LogSoftmax":
            self._logarithms[out] = 1
        elif name in ("cross_entropy", "nll_loss") and kwargs.get("reduction") == "none":
            self._logarithms[out] = -1
        elif self._logarithms and (name in _KEEPS or name in _TURNS):
            first = next(tensors(args), None)
            if (way := self._logarithms.get(first)) is not None:
                self._logarithms[out] = -way if name in _TURNS else way
        elif self._logarithms and name in _PRODUCTS and len(args) >= 2:
            self._product(args[0], args[1], out)

    def _product(self, first: Any, second: Any, out: torch.Tensor) -> None:
        way, other = self._logarithms.get(first), second
        if way is None:
            way, other = self._logarithms.get(second), first
        if way is None:
            return
        self._policies.weighed(other, out)
        if isinstance(other, int | float):
            self._logarithms[out] = way if other > 0 else -way
        elif (
            isinstance(other, torch.Tensor)
            and not other.requires_grad
            and other.numel() == out.numel() >= _FEWEST
            and _weighs_reward(caller())
        ):
            self._follow(out, way, even=False)

    def _follow(self, tensor: torch.Tensor, way: int, *, even: bool) -> None:
        if readable(tensor) and tensor.numel() >= _FEWEST:
            tensor.register_hook(functools.partial(self.scene.failsafe.callback(self._moved), caller(), way, even))

    def _moved(self, where: str, way: int, even: bool, gradient: torch.Tensor) -> None:
        with aside(), torch.no_grad():
            counted = gradient[gradient != 0]
            if not counted.numel():
                return
            alike = bool((counted > 0).all() | (counted < 0).all())
            if even:
                alike &= float(counted.max() - counted.min()) <= _EVEN * float(counted.abs().max())
            sign = -way * (1 if float(counted[0]) > 0 else -1) if alike else 0
        self.likelihoods.append(Likelihood(where, self.scene.backwards - 1, sign, of_data=even))

    def update_ends(self, optimizer: Optimizer) -> None:
        self._drawn, self._logarithms = WeakNotes(), WeakNotes()

    def facts(self) -> Iterator[LossFacts]:
        yield LossFacts(likelihoods=tuple(self.likelihoods))


def _is_log_of_sigmoid(out: torch.Tensor) -> bool:
    node: Any = out.grad_fn
    if operation(node) != "Log":
        return False
    above = through_views(node.next_functions[0][0])
    return operation(above) == "Sigmoid" or operation(squeezed(above)) == "Sigmoid"


def _weighs_reward(where: str) -> bool:
    """Does the user's line multiply by something like a reward or an advantage, and not by its negative?"""
    file, _, line = where.rpartition(":")
    text = linecache.getline(file, int(line)) if line.isdigit() else ""
    found = _RAISED.search(text)
    return found is not None and not _LOWERED.search(text) and not _IS_NEGATIVE.search(text[: found.start()])
