"""Finds tensors of a graph that are written through `.data`, unseen by autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from surefoot.checks.engine.autograd_graph import Graph
from surefoot.checks.engine.functions import DATA
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.events.callers import caller
from surefoot.torch_inside.autograd import number

_WRITES = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__setitem__"}


class DataWrites(Observer):
    """Records writes that autograd does not notice."""

    after = (Gradients,)
    reads = True
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.lines: dict[str, None] = {}
        self._known: WeakNotes[int] = WeakNotes()
        """The `.data` of tensors with a graph, with the number of the node that made each tensor."""
        self._written: dict[int, str] = {}

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Records reads of `.data`, and writes to what was read."""
        if not self.scene.close or not args or not isinstance(args[0], torch.Tensor):
            return
        name = getattr(function, "__name__", "")
        if name == "__get__" and function == DATA and args[0].grad_fn is not None:
            self._known[out] = number(args[0].grad_fn)
        elif name in _WRITES or (name.endswith("_") and not name.endswith("__")):
            node = self._known.get(args[0])
            if node is not None:
                self._written.setdefault(node, caller() or self.scene.phases.module() or "the model")

    def graph_seen(self, graph: Graph) -> None:
        self.lines |= {line: None for node, line in self._written.items() if node in graph.numbers}
        self._known, self._written = WeakNotes(), {}

    def facts(self) -> Iterator[GradientFacts]:
        yield GradientFacts(written_through_data=tuple(self.lines))
