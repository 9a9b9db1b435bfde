"""Records means and sums that handwritten losses are made of, and their weight in the backward."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch.autograd.graph import Node

from surefoot.checks.engine.autograd_graph import Graph, operation, unscaled
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.loop import Backward
from surefoot.checks.facts.losses import Loss, LossFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.events.callers import caller, site
from surefoot.torch_inside.modes import aside


class Reductions(Observer):
    """Records every mean or sum to a single number that has a gradient, and the factor of losses that are sums of
    terms.
    """

    after = (Gradients,)
    functions = {"mean", "sum"}
    reads = True
    waits = True

    def __init__(self, scene: Scene, gradients: Gradients) -> None:
        super().__init__(scene)
        self._gradients = gradients
        self.reductions: list[Loss] = []

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Records a mean or sum to a single number."""
        name = getattr(function, "__name__", "")
        if name not in ("mean", "sum") or not self.scene.close or not args or not isinstance(args[0], torch.Tensor):
            return
        if not isinstance(out, torch.Tensor) or out.dim() or not out.requires_grad or not readable(out):
            return
        shape = tuple(args[0].shape)
        made = Loss(name, caller(), name, shape, shape, self.scene.updates, site=site())
        made.targets = made.valid = args[0].numel()
        out.register_hook(functools.partial(self.scene.failsafe.callback(self._weigh), made))
        self.reductions.append(made)

    def _weigh(self, made: Loss, gradient: torch.Tensor) -> None:
        with aside():
            HOST.later(gradient, lambda weight: made.weights.append(float(weight)))

    def graph_seen(self, graph: Graph) -> None:
        for made in reversed(self.reductions):
            if made.backward >= 0:
                break
            made.backward = self.scene.backwards
        if self.scene.close and len(graph.roots) == 1 and _adds_terms(joint := unscaled(graph.roots[0])):
            backward = self._gradients.backwards[-1]
            weigh = self.scene.failsafe.callback(_weigh_jointly)
            joint.register_prehook(lambda gradients: weigh(backward, gradients[0]))

    def facts(self) -> Iterator[LossFacts]:
        yield LossFacts(reductions=tuple(self.reductions))


def _adds_terms(node: Node) -> bool:
    return operation(node) == "Add" and all(each is not None for each, _ in node.next_functions)


def _weigh_jointly(backward: Backward, gradient: torch.Tensor | None) -> None:
    if backward.joint is None and gradient is not None and gradient.numel() == 1 and readable(gradient):
        HOST.later(gradient, functools.partial(_note_joint, backward))


def _note_joint(backward: Backward, weight: torch.Tensor) -> None:
    if backward.joint is None:
        backward.joint = float(weight)
