"""Recognises divergences and likelihoods of Gaussians, and errors of bootstrapped values, in the graph of a loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph, operation
from surefoot.checks.engine.linear_terms import Atom, Power, Product, Source, Term, terms_of
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.losses.known_terms import KnownTerms
from surefoot.checks.losses.policy_terms import PolicyTerms
from surefoot.events.callers import caller
from surefoot.torch_inside.autograd import saved
from surefoot.torch_inside.modes import aside

_NEAR = 1e-3
_ERRORS = ("MseLoss", "SmoothL1Loss", "HuberLoss", "L1Loss")
_DISCOUNTS = 0.5
"""A discount of future rewards is at least this large, and below 1."""
_CHOICES = ("Max", "Amax", "Gather", "Index", "Minimum")
Terms = dict[Atom, Term]


class GaussianTerms(Observer):
    """Reads the terms of every loss while the checks look closely."""

    after = (Gradients,)

    def __init__(self, scene: Scene, known: KnownTerms, policies: PolicyTerms) -> None:
        super().__init__(scene)
        self._known, self._policies = known, policies
        self._packed = False
        """Saved tensors are packed, as by a checkpoint: each may be unpacked once, and only by the backward."""

    def __enter__(self) -> GaussianTerms:
        self.follow(torch.autograd.graph.saved_tensors_hooks, "__enter__", before=self._packs)
        return self

    def _packs(self, *_: object) -> None:
        self._packed = True

    def update_ends(self, optimizer: Optimizer) -> None:
        self._packed = False

    def graph_seen(self, graph: Graph) -> None:
        if not self.scene.close or graph.asked or self._packed:
            return
        with aside():
            for root in graph.roots:
                terms = terms_of(root)
                for kind, fault in (
                    *_divergences(terms),
                    *_spreads(terms, root),
                    *_bootstraps(terms, self._policies.acts),
                ):
                    self._known.saw(kind, caller(), fault)


def _divergences(terms: Terms) -> Iterator[tuple[str, str]]:
    """Divergences of N(mean, variance) from N(0, 1): mean^2 + variance - log(variance), up to one factor."""
    squares = {atom.of: term for atom, term in terms.items() if isinstance(atom, Power) and atom.kind == "square"}
    for atom, term in terms.items():
        if not isinstance(atom, Power) or not term.factor:
            continue
        if atom.kind == "exponential":
            logs = terms.get(Power("plain", atom.of))
            rate = atom.rate
        elif atom.kind == "square":
            logs, rate = terms.get(Power("logarithm", atom.of)), 2.0
        else:
            continue
        if logs is None or not logs.factor:
            continue
        means = [each for of, each in squares.items() if of != atom.of and each.shape == term.shape and each.factor]
        if means:
            yield "divergence", _fault(term, means[0].factor, logs.factor / rate)
        elif _is_near(logs.factor, -rate * term.factor) and _has_plain_mean(terms, atom, term):
            yield "divergence", "the mean enters it as it is, not squared"


def _fault(variance: Term, mean: float, log: float) -> str:
    """What is wrong with a divergence whose three terms have these factors: variance, squared mean, log-variance."""
    factor = variance.factor
    if factor < 0 and mean < 0 and log > 0:
        return "it enters the loss with a negative factor, so that it is raised"
    if mean * factor < 0:
        return "the squared mean has the opposite sign of the variance"
    if log * factor > 0:
        return "the log-variance has the same sign as the variance"
    if _is_twice(mean, factor):
        return f"the squared mean counts {_number(mean / factor)} times as much as the variance, not as much"
    if _is_near(mean, factor) and _is_twice(-log, factor):
        return f"it is smallest at a variance of {_number(-log / factor)}, not 1"
    inner = variance.reduced[-1] if variance.reduced else None
    outer = [name for name, _, _ in variance.reduced[:-1]]
    if inner is not None and inner[0] == "sum" and inner[1] == (0,) and inner[2] == 2 and outer == ["mean"]:
        return "it is summed over the samples and averaged over the latent numbers"
    return ""


def _has_plain_mean(terms: Terms, atom: Power, term: Term) -> bool:
    """Is one more tensor added as it is, with the factor that a squared mean should have?"""
    plain = [
        each
        for other, each in terms.items()
        if isinstance(other, Power) and other.kind == "plain" and other.of != atom.of and each.reduced == term.reduced
    ]
    return len(plain) == 1 and _is_near(abs(plain[0].factor), abs(term.factor))


def _spreads(terms: Terms, root: Any) -> Iterator[tuple[str, str]]:
    """Squared errors that are divided by a learned variance: its logarithm must be added."""
    for atom, term in terms.items():
        if not isinstance(atom, Product) or len(term.shape) == 0 or math.prod(term.shape) < 2 or term.factor <= 0:
            continue
        log = terms.get(Power("plain" if atom.exponential else "logarithm", atom.of))
        wanted = -atom.rate * term.factor
        if log is None or not log.factor:
            if atom.exponential and not _is_used_elsewhere(atom, root):
                yield "spread", "nothing keeps the learned variance from growing: its logarithm is not added"
        elif log.factor * wanted < 0:
            yield "spread", "the logarithm of the learned variance has the wrong sign"
        elif _is_twice(log.factor, wanted):
            yield "spread", f"at its minimum the variance is {_number(wanted / log.factor)} times the squared error"
        else:
            yield "spread", ""


def _is_used_elsewhere(atom: Product, root: Any) -> bool:
    """Does the loss depend on the learned variance in another way than through this product?"""
    uses = set()
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        for above, output in node.next_functions:
            if Source(above, output) == atom.of:
                uses.add(node)
            if above is not None and above not in seen:
                seen.add(above)
                waiting.append(above)
    return len(uses) != 1


def _bootstraps(terms: Terms, acts: bool) -> Iterator[tuple[str, str]]:
    """Errors against a reward plus a discounted value, if a gradient flows into that value.

    If actions are drawn from a policy, any value may be discounted; else only one that is chosen among actions.
    """
    for atom in terms:
        if not isinstance(atom, Power):
            continue
        node = atom.of.node
        squared = atom.kind == "square" and operation(node) == "Sub"
        if squared or (atom.kind == "plain" and operation(node) in _ERRORS):
            sides = [each for each, _ in node.next_functions]
            if len(sides) == 2 and any(_is_bootstrapped(one, other, acts) for one, other in (sides, sides[::-1])):
                yield "bootstrap", "a gradient flows into the value of the next state"


def _is_bootstrapped(target: Any, value: Any, acts: bool) -> bool:
    """Is this a constant plus a discounted value, while the other side is a value, too?"""
    target, value = _through(target), _through(value)
    if target is None or value is None or operation(target) != "Add":
        return False
    inputs = [each for each, _ in target.next_functions]
    if sum(each is not None for each in inputs) != 1:
        return False
    node, discounted = next(each for each in inputs if each is not None), False
    while operation(node := _through(node)) == "Mul":
        below = [each for each, _ in node.next_functions if each is not None]
        if len(below) != 1:
            return False
        discounted |= _discounts(node)
        node = below[0]
    chosen = operation(node) in _CHOICES and operation(value) in ("Gather", "Index")
    return discounted and (acts or chosen)


def _discounts(node: Any) -> bool:
    """Does a product multiply by a discount, which may be 0 after the last state?"""
    for name in ("other", "self"):
        kept = saved(node, name)
        if isinstance(kept, torch.Tensor) and kept.numel():
            most = float(kept.detach().abs().max())
            return _DISCOUNTS <= most < 1
    return False


def _through(node: Any) -> Any:
    while operation(node) in ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "ToCopy"):
        node = node.next_functions[0][0]
    return node


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= _NEAR * max(abs(one), abs(other))


def _is_twice(one: float, other: float) -> bool:
    return _is_near(one, 2 * other) or _is_near(2 * one, other)


def _number(value: float) -> str:
    return f"{value:.3g}"
