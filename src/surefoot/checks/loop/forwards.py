"""Records the forwards of models: their mode, their inputs, and what became of their outputs."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.autograd_graph import Graph, saves
from surefoot.checks.engine.captured_call import Captured
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import (
    Scene,
    digest,
    digests_now,
    fingerprint,
    held,
    readable,
    sampled,
    tensors,
)
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_set import WeakTensorSet
from surefoot.checks.facts.loop import Forward, LoopFacts
from surefoot.checks.loop.modes import resting, switching
from surefoot.torch_inside.autograd import number, writes
from surefoot.torch_inside.modes import aside

_RETURNS_ITSELF = {
    "contiguous", "to", "float", "double", "half", "bfloat16", "long", "int", "type", "cpu", "cuda", "type_as",
    "requires_grad_", "retain_grad", "expand_as", "view_as", "squeeze", "flatten", "dropout", "__get__", "bool",
}  # fmt: skip
"""Functions that may return their argument unchanged."""
_PRINTED = 64
"""The number of values of a parameter that are hashed to see whether it changes."""


class Sentinel:
    """An object that lives as long as the graph node that holds it."""


@dataclass
class _Pending:
    """A forward whose backward may still come."""

    model: weakref.ref[nn.Module]
    forward: Forward
    numbers: set[int] = field(default_factory=set)
    model_updates: int = 0
    prints: dict[torch.Tensor, tuple[int, int]] = field(default_factory=dict)
    sentinel: weakref.ref[Sentinel] | None = None
    asked: bool = False
    """`torch.autograd.grad` returned its gradients. No update has used them yet."""
    inputs: list[tuple[weakref.ref[torch.Tensor], int, int]] = field(default_factory=list)
    """Each input with a hash of its values and its version counter."""

    def overwritten(self, graph: Graph) -> tuple[set[torch.Tensor], bool]:
        """The parameters, and whether also an input, whose values changed without autograd noticing."""
        inputs = [
            (each, before) for ref, before, at in self.inputs if (each := ref()) is not None and writes(each) == at
        ]
        leaves = [(p, print_) for p, (print_, at) in self.prints.items() if writes(p) == at]
        with aside():
            now = digests_now([*(each for each, _ in inputs), *(sampled(p, _PRINTED) for p, _ in leaves)])
        of_inputs, of_leaves = zip(inputs, now, strict=False), zip(leaves, now[len(inputs) :], strict=True)
        changed = {p for (p, before), print_ in of_leaves if print_ != before}
        return changed, any(print_ != before and saves(graph, each) for (each, before), print_ in of_inputs)


class Forwards(Observer):
    """Records the inputs and the mode of each model call."""

    reads = True
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.forwards: list[Forward] = []
        self.in_bfloat16: list[Forward] = []
        """Those that ran in bfloat16."""
        self.captured: dict[nn.Module, Captured] = {}
        self.executed: set[nn.Module] = set()
        self.resting: set[nn.Module] = set()
        """Those that ran in evaluation mode inside a model in training mode."""
        self.feeding: set[nn.Module] = set()
        """Models whose output entered another model without its graph."""
        self.shapes: list[Any] = []
        self._made: dict[int, nn.Module] = {}
        """The model that made an output with a graph, by a hash of the output."""
        self._first_prints: dict[torch.Tensor, int] = {}
        self._graded = False
        self._pending: list[_Pending] = []
        self._unsettled: list[_Pending] = []
        self._model_updates: dict[nn.Module, int] = {}
        self._versions: list[tuple[weakref.ref[torch.Tensor], int]] = []
        self._states: dict[tuple[int, int], tuple[int, int]] = {}
        self._running: set[nn.Module] = set()
        self._written: dict[nn.Module, WeakTensorSet] = {}
        """The tensors that were written in place while each module ran. It keeps none of them alive."""
        self._wrote_argument = False
        self._state = 0

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Records writes in place: the function returned its own argument or set an item of it."""
        name = getattr(function, "__name__", "")
        written = kwargs.get("out", args[0] if args else None)
        if name != "__setitem__" and (out is not written or name in _RETURNS_ITSELF):
            return
        if self._graded and isinstance(written, torch.Tensor) and self.scene.close:
            for module in self.scene.phases.running():
                self._written.setdefault(module, WeakTensorSet()).add(written)

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._running = set()
        self._written = {}
        self._graded = torch.is_grad_enabled()
        self._versions = [(weakref.ref(each), writes(each)) for each in tensors(args) if not each.requires_grad]
        if self.scene.close:
            self._state = random_state()
        if torch.is_grad_enabled():
            self._note_kept(model)
            forward = Forward(self.scene.name(model), model.training, switching(model), update=self.scene.updates)
            forward.resting = () if model.training else resting(model)
            pending = _Pending(weakref.ref(model), forward, model_updates=self._model_updates.get(model, 0))
            self.forwards.append(forward)
            self._pending.append(pending)
            self._unsettled.append(pending)

    def leave_out(self, forwards: int) -> None:
        """Forgets all forwards after the first `forwards`: they were single samples of one batch."""
        extra = {id(each) for each in self.forwards[forwards:]}
        self.forwards = self.forwards[:forwards]
        self._pending = [each for each in self._pending if id(each.forward) not in extra]
        self._unsettled = [each for each in self._unsettled if id(each.forward) not in extra]

    def derive(self, numbers: set[int]) -> None:
        """A gradient is computed through these graph nodes."""
        for pending in self._pending:
            pending.forward.derived |= not numbers.isdisjoint(pending.numbers)

    def gradients_discarded(self) -> None:
        """Forwards whose gradients are cleared lead to no update, as in an attack or a measurement."""
        self._unsettled = [each for each in self._unsettled if not each.forward.backpropagated]

    def _note_kept(self, model: nn.Module) -> None:
        """If the graph of an evaluation outlives the next forward, something keeps it alive."""
        last = [each for each in self._pending[-2:] if not each.forward.training and each.model() is model]
        if len(last) == 2 and not model.training and last[0].sentinel is not None:
            last[0].forward.graph_kept |= last[0].sentinel() is not None

    def module_called(self, module: nn.Module, args: Args, output: object) -> None:
        if self.scene.phases.recomputing():
            return
        if self._graded:
            self._running.add(module)
        if self.scene.close and (not type(module).__module__.startswith("torch.") or isinstance(module, nn.Sequential)):
            self._wrote_argument |= _among(args, self._written.get(module, ()))

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        shapes = tuple(tuple(each.shape) for each in tensors((args, kwargs)))
        if not torch.is_grad_enabled():
            return
        self.shapes.append(shapes)
        pending = self._pending[-1]
        forward = pending.forward
        forward.shapes = shapes
        forward.wrote_input = any((x := ref()) is not None and writes(x) != before for ref, before in self._versions)
        forward.wrote_input |= self._wrote_argument or _among((args, kwargs), self._written.get(model, ()))
        self._wrote_argument, self._written = False, {}
        outputs = [each for each in tensors(output) if each.is_floating_point()]
        nodes = [each.grad_fn for each in outputs if each.grad_fn is not None]
        pending.numbers = {number(node) for node in nodes if not hasattr(node, "variable")}
        forward.builds_graph = bool(pending.numbers)
        forward.input_graded = any(each.requires_grad for each in tensors((args, kwargs)))
        self.executed |= self._running
        self.resting |= {each for each in self._running if model.training and not each.training}
        self._note_precision(model, forward)
        if not model.training and nodes:
            sentinel = Sentinel()
            for node in nodes:
                node.metadata["surefoot"] = sentinel  # type: ignore[index]
            pending.sentinel = weakref.ref(sentinel)
        if self.scene.close:
            self._look(model, pending, args, kwargs, outputs)

    def _look(
        self, model: nn.Module, pending: _Pending, args: object, kwargs: object, outputs: list[torch.Tensor]
    ) -> None:
        """Reads the first forwards: their inputs, random state and parameters."""
        forward = pending.forward
        inputs = [each for each in tensors((args, kwargs)) if readable(each) and each.numel() > 1]
        made = [each for each in outputs if each.requires_grad and readable(each)]
        leaves = [p for p in model.parameters() if p.is_leaf and readable(p)]  # others only replace parameters
        with aside():
            read = HOST.all_of([*inputs, *made], fresh=[sampled(p, _PRINTED) for p in leaves])
            samples = map(digest, read[len(inputs) + len(made) :])
            pending.prints = {p: (print_, writes(p)) for p, print_ in zip(leaves, samples, strict=True)}
        prints = tuple(digest(each) for each in inputs)
        forward.batch = hash(prints) if inputs else 0
        pending.inputs = [(weakref.ref(each), it, writes(each)) for each, it in zip(inputs, prints, strict=True)]
        drew = random_state() != self._state
        ordinal = sum(each.forward.update == forward.update for each in self._pending)
        before = self._states.get((id(model), ordinal))
        forward.reseeded = drew and before == (self._state, forward.update - 1)
        self._states[id(model), ordinal] = self._state, forward.update
        for parameter, (print_, _) in pending.prints.items():
            self._first_prints.setdefault(parameter, print_)
        forward.fed_by = self._link(model, inputs, made)
        captured = self.captured.get(model)
        if forward.builds_graph and (captured is None or not captured.used):
            self._capture(model, args, kwargs, outputs)

    def _link(self, model: nn.Module, inputs: list[torch.Tensor], made: list[torch.Tensor]) -> str:
        """The model that an input without a graph came from: "itself", "another", or empty."""
        given = (each for each in inputs if each.is_floating_point() and not each.requires_grad)
        makers = {maker for each in given if (maker := self._made.get(digest(each))) is not None}
        self.feeding |= makers - {model}
        self._made |= {digest(each): model for each in made}
        return "itself" if model in makers else "another" if makers else ""

    def moved(self, parameter: torch.Tensor) -> bool:
        """Did this parameter change since its first forward?"""
        before = self._first_prints.get(parameter)
        return before is not None and fingerprint(parameter, _PRINTED) != before

    def _capture(self, model: nn.Module, args: object, kwargs: object, outputs: list[torch.Tensor]) -> None:
        device = next((each.device.type for each in outputs), "cpu")
        on = torch.is_autocast_enabled(device)
        numbers = [0 if each.grad_fn is None else number(each.grad_fn) for each in outputs]
        cast = (device, torch.get_autocast_dtype(device)) if on else None
        captured = Captured.of(model, args, kwargs, numbers, cast, self.scene.backwards)
        captured.goes_on(self.captured.get(model))
        captured.follow(outputs, self.scene.failsafe)
        self.captured[model] = captured

    def _note_precision(self, model: nn.Module, forward: Forward) -> None:
        device = next((each.device.type for each in model.parameters()), "cpu")
        trained = (each.dtype for each in model.parameters() if each.is_floating_point() and each.requires_grad)
        dtype = next(trained, None)
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        forward.float16 = dtype == torch.float16
        if dtype == torch.bfloat16:
            self.in_bfloat16.append(forward)

    def graph_seen(self, graph: Graph) -> None:
        for captured in self.captured.values():
            captured.used |= graph.numbers.intersection(captured.outputs)
        for pending in self._pending:
            forward = pending.forward
            if not pending.numbers & graph.numbers:
                continue
            pending.asked = graph.asked and (pending.asked or not forward.backpropagated)
            if forward.backpropagated:
                continue
            forward.backpropagated = True
            model = pending.model()
            if model is not None:
                forward.late_backward = self._model_updates.get(model, 0) > pending.model_updates
            changed, inputs_too = pending.overwritten(graph)
            forward.overwritten = tuple(
                self.scene.names().get(parameter, "?")
                for parameter in pending.prints
                if parameter in changed and (parameter in graph.leaves or saves(graph, parameter))
            )
            if inputs_too:
                forward.overwritten = (*forward.overwritten, "what the model was given")
            pending.prints, pending.inputs = {}, []
        self.shapes = []

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        for model in self._mark_trained(optimizer):
            self._model_updates[model] = self._model_updates.get(model, 0) + 1
        self._made = {}

    def _mark_trained(self, optimizer: torch.optim.Optimizer) -> set[nn.Module]:
        """Marks the forwards since the last update as trained. Returns the models of the optimizer."""
        parameters = set(held(optimizer))
        touched = {m for m in self.scene.phases.models if not parameters.isdisjoint(m.parameters())}
        added = any(each.forward.backpropagated and not each.asked for each in self._unsettled)
        for pending in self._unsettled:
            measured = pending.asked and added and not pending.forward.training
            pending.forward.trained |= pending.model() in touched and not measured
        self._unsettled = []
        return touched

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._mark_trained(optimizer)  # for forwards inside a closure
        waiting = []
        for pending in self._pending:
            age = self.scene.updates - pending.forward.update
            alive = pending.sentinel is not None and pending.sentinel() is not None
            pending.forward.graph_kept |= alive and age >= 2 and not pending.forward.backpropagated
            pending.prints, pending.inputs = {}, []
            if age < 3 and not pending.forward.backpropagated:
                waiting.append(pending)
        self._pending = waiting

    def facts(self) -> Iterator[LoopFacts]:
        yield LoopFacts(forwards=tuple(self.forwards))


def _among(tree: object, written: Container[torch.Tensor]) -> bool:
    return any(each in written for each in tensors(tree))


def random_state() -> int:
    return digest(torch.default_generator.get_state())
