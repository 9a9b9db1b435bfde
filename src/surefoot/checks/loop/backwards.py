"""Records every call that asks for the gradient of a loss, and the graph behind that loss."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable
from surefoot.checks.facts.loop import Backward, LoopFacts
from surefoot.checks.loop.forwards import Forwards
from surefoot.events.callers import caller, site
from surefoot.torch_inside.autograd import next_node


class Backwards(Observer):
    """Creates one record per call. Other observers fill in the last record."""

    before = (Forwards,)

    def __init__(self, scene: Scene, calls: Forwards) -> None:
        super().__init__(scene)
        self._calls = calls
        self.seen: list[Backward] = []
        self.scale = 1.0
        """The factor by which the loss of the next backward is multiplied."""
        self._nodes_at: deque[int] = deque(maxlen=2)
        """How many nodes existed when each of the last two updates ended."""

    def graph_seen(self, graph: Graph) -> None:
        makers = self.scene.phases.maker
        self.seen.append(
            Backward(
                where=caller(),
                differentiable=any(tensor.requires_grad for tensor in graph.losses),
                reaches_optimized=False,
                followed_by_update=False,
                double_softmax=tuple(makers(node) or "the loss" for node in graph.softmaxes),
                double_sigmoid=tuple(makers(node) or "the loss" for node in graph.sigmoids),
                nodes=len(graph.numbers),
                old_nodes=self._older(graph),
                shapes=tuple(self._calls.shapes),
                update=self.scene.updates,
                ascends=graph.ascends,
                in_update=self.scene.updating is not None,
                site=site(),
                scale=self.scale,
                asked=graph.asked,
            )
        )
        self._note_value(graph.losses, self.seen[-1])

    def backward_ends(self) -> None:
        self.scale = 1.0

    def update_ends(self, optimizer: Optimizer) -> None:
        self._nodes_at.append(next_node())

    def _older(self, graph: Graph) -> int:
        """The number of nodes that were made before the last two updates."""
        since = self._nodes_at[-2] if len(self._nodes_at) == 2 and not self.scene.numbered_apart else 0
        return sum(each < since for each in graph.numbers) if min(graph.numbers, default=0) < since else 0

    def _note_value(self, losses: list[torch.Tensor], backward: Backward) -> None:
        if self.scene.close and len(losses) == 1 and losses[0].numel() == 1 and readable(losses[0]):
            HOST.later(losses[0], lambda value: setattr(backward, "value", float(value)))

    def facts(self) -> Iterator[LoopFacts]:
        yield LoopFacts(backwards=tuple(self.seen))
