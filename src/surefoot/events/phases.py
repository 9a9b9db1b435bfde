"""Finds which phase of a training step is running, and in which module. The loop needs no change.

`Phases` hears calls of modules (torch's global forward hooks), `torch.autograd.backward` (wrapped while it
follows a loop), autograd's graph task, and `Optimizer.step` (torch's global optimizer hooks). It works with real
and fake tensors, any optimizer and any loop, and calls the methods of its listeners (`listener.py`).

    load -> forward -> loss -> backward -> update -> load ...

`init` is the time before the first forward, if no model was given. `evaluate` is a forward without gradients. The
time after a backward gets its name from the next event: `load` before a forward, `update` before an optimizer's step
(unscaling and clipping belong to the update).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from surefoot.events.listener import Listener, Segment, hears
from surefoot.torch_inside.autograd import current_node, in_graph_task, next_node, number
from surefoot.torch_inside.collectives import hide_inferred_shapes
from surefoot.torch_inside.modes import in_transform, modes_are_on, unseen
from surefoot.torch_inside.modules import forget_forward_hook
from surefoot.torch_inside.patches import patch
from surefoot.torch_inside.processes import BATCHES

if TYPE_CHECKING:
    from typing_extensions import Self


class _Unsaved:
    """A hook that does nothing in copies of its model and in pickled models. Loading those does not need surefoot."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self._hook = hook

    def __call__(self, *args: Any) -> None:
        self._hook(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class Phases:
    """Follows a loop while entered. `now()` is the current segment, `module()` the innermost module at work."""

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        self.listeners: list[Listener] = []
        self._known: list[Listener] = []
        self._heard: dict[str, list[Callable[..., None]]] = {}
        self.models: MutableMapping[torch.nn.Module, str] = {}
        self.names: MutableMapping[torch.nn.Module, str] = {}
        self.segment = Segment("init" if model is None else "load")
        self._given = model
        self._calls: list[tuple[torch.nn.Module, bool]] = []
        self._forwards = self._backwards = 0
        self._marks: list[tuple[int, str]] = [(0, "")]
        self._entered, self._calls_heard = ExitStack(), ExitStack()
        self._is_deaf = self._shards_seen = False
        self.fetching = False
        """Is a `DataLoader` making a batch?"""
        self._marks_nodes = True

    def __enter__(self) -> Self:
        self.all_modules()
        self._entered.push(self._calls_heard)
        self._entered.callback(register_optimizer_step_pre_hook(self._update_begins).remove)
        self._entered.callback(register_optimizer_step_post_hook(self._update_ends).remove)
        self._follow_backward()
        self._follow_random_state()
        self._follow_loaders()
        self._follow_resizes()
        if self._given is not None:
            self.find(self._given)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def all_modules(self) -> None:
        """Hears calls of every module. This is the default."""
        self._calls_heard.close()
        self._marks_nodes = True
        self._calls_heard.callback(register_module_forward_pre_hook(self._call_begins).remove)
        follow = register_module_forward_hook(self._call_ends, with_kwargs=True, always_call=True)
        self._calls_heard.callback(follow.remove)
        # torch's handle leaves this entry behind, and torch.compile then warns of a global hook
        self._calls_heard.callback(forget_forward_hook, follow.id)

    def only_models(self) -> None:
        """Hears only calls of the models found so far: phases stay known, inner modules do not."""
        if any(isinstance(model, torch.nn.TransformerEncoderLayer) for model in self.models):
            return  # with a hook of its own it would leave its fast path; it does not ask for hooks of all modules
        self._calls_heard.close()
        self._marks_nodes = False
        for model in self.models:
            self._calls_heard.callback(model.register_forward_pre_hook(_Unsaved(self._call_begins)).remove)
            follow = model.register_forward_hook(_Unsaved(self._call_ends), with_kwargs=True, always_call=True)
            self._calls_heard.callback(follow.remove)

    def _hearing(self, event: str) -> list[Callable[..., None]]:
        """The methods to call for an event: those of listeners that have one of their own."""
        if self._known != self.listeners:
            self._known, self._heard = list(self.listeners), {}
        if event not in self._heard:
            self._heard[event] = [getattr(each, event) for each in self._known if hears(each, event)]
        return self._heard[event]

    def now(self) -> Segment:
        """The segment that is running."""
        if (self._backwards or in_graph_task()) and self.segment.name != "backward":
            self._enter("backward")
        return self.segment

    def module(self) -> str:
        """The innermost running module; in backward, the one whose forward made the running node."""
        if self._calls:
            return self._name(self._calls[-1][0])
        node = current_node()
        return "" if node is None else self.maker(node)

    def running(self) -> list[torch.nn.Module]:
        """The running modules, outermost first."""
        return [module for module, _ in self._calls]

    def in_model(self) -> bool:
        """Is the forward of a model running?"""
        return self._forwards > 0

    def recomputing(self) -> bool:
        """Is a module's forward running again inside the backward?"""
        return bool(self._calls) and self.now().name == "backward"

    def maker(self, node: torch.autograd.graph.Node) -> str:
        """The innermost module whose forward made a node of this step's graph."""
        made = number(node)  # autograd numbers the nodes of a thread as forward makes them
        return self._marks[bisect_right(self._marks, made, key=lambda mark: mark[0]) - 1][1]

    def _enter(self, name: str) -> None:
        self.segment = Segment(name)
        for hear in self._hearing("entered"):
            hear(self.segment)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Code inside is not part of the loop: no listener hears it and no dispatch mode sees it."""
        self._is_deaf = True
        try:
            with unseen():
                yield
        finally:
            self._is_deaf = False

    @property
    def is_deaf(self) -> bool:
        """Are events ignored? They also are inside `torch.func`'s `grad` or `vmap`, where tensors have no storage."""
        return self._is_deaf or in_transform()

    def _call_begins(self, module: torch.nn.Module, args: Any) -> None:
        if self.is_deaf:
            return
        is_model = not (self._forwards or self._backwards) and (module in self.models or _has_parameters(module))
        self._calls.append((module, is_model))
        if is_model:
            self._forward_begins(module)
            for hear in self._hearing("model_called"):
                hear(module, args)
        for hear in self._hearing("module_begins"):
            hear(module, args)
        self._mark()

    def _call_ends(self, module: torch.nn.Module, args: Any, *rest: Any) -> None:
        if self.is_deaf:
            return
        kwargs = rest[0] if len(rest) == 2 else {}  # after an exception torch does not pass them
        returned = len(rest) == 2
        if returned:
            for hear in self._hearing("module_called"):
                hear(module, args, rest[1])
        while self._calls:  # an exception inside a module can skip the end of its children
            called, is_model = self._calls.pop()
            if is_model:
                if returned and called is module:
                    for hear in self._hearing("model_returned"):
                        hear(module, args, kwargs, rest[1])
                self._forward_ends(called, args, kwargs)
            if called is module:
                break
        self._mark()

    def _forward_begins(self, model: torch.nn.Module) -> None:
        if self.segment.name == "between":
            self.segment.name = "load"
        if model not in self.names and not self._wraps_known(model):
            self.find(model)
        self._forwards += 1
        for hear in self._hearing("forward_begins"):
            hear(model)
        self._enter("forward" if torch.is_grad_enabled() else "evaluate")

    def _forward_ends(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        self._forwards -= 1
        for hear in self._hearing("forward_ends"):
            hear(model, args, kwargs)
        self._enter("loss" if self.segment.name == "forward" else self.segment.name)

    def _follow_backward(self) -> None:
        def make(plain: Any) -> Any:
            def followed(tensors: Any, *args: Any, **kwargs: Any) -> None:
                self._backward_begins(tensors)
                try:
                    plain(tensors, *args, **kwargs)
                finally:
                    self._backward_ends()

            return followed

        self._entered.callback(patch(torch.autograd, "backward", make))

    def _follow_random_state(self) -> None:
        """Hears when recomputation saves the generator's state for a block. No operator makes that tensor.

        Silent while no dispatch mode is on, for example while data is built.
        """

        def make(plain: Any) -> Any:
            def followed() -> torch.Tensor:
                state: torch.Tensor = plain()
                for hear in self._hearing("rng_saved") if modes_are_on() else ():
                    hear(state)
                return state

            return followed

        self._entered.callback(patch(torch, "get_rng_state", make))

    def _follow_loaders(self) -> None:
        """Hears when a `DataLoader` fetches a batch, and how long the loop waits for it."""

        def make(plain: Any) -> Any:
            def followed(batches: Any) -> Any:
                for hear in self._hearing("fetch_begins"):
                    hear()
                began, self.fetching = time.perf_counter(), True
                try:
                    return plain(batches)
                finally:
                    lasted, self.fetching = time.perf_counter() - began, False
                    for hear in self._hearing("batch_fetched"):
                        hear(lasted)

            return followed

        self._entered.callback(patch(BATCHES, "__next__", make))

    def _follow_resizes(self) -> None:
        """Hears when FSDP allocates or frees a storage's memory, which tensors still refer to."""

        def make(plain: Any) -> Any:
            def followed(storage: torch.UntypedStorage, size: int) -> Any:
                resized = plain(storage, size)
                for hear in self._hearing("resized"):
                    hear(storage)
                return resized

            return followed

        self._entered.callback(patch(torch.UntypedStorage, "resize_", make))

    def shards_seen(self) -> None:
        """Call this when a sharded tensor appears. Hides the operators that DTensor runs only to infer shapes."""
        if self._shards_seen:
            return
        self._shards_seen = True
        self._entered.callback(hide_inferred_shapes())
        self._entered.callback(setattr, self, "_shards_seen", False)

    def _backward_begins(self, losses: Any) -> None:
        self._backwards += 1
        if self._backwards > 1:  # reentrant recomputation runs a backward inside the backward
            return
        if self.segment.name == "between":
            self.segment.name = "loss"
        for hear in self._hearing("backward_begins"):
            hear(losses)
        self._enter("backward")

    def _backward_ends(self) -> None:
        self._backwards -= 1
        if self._backwards:
            return
        for hear in self._hearing("backward_ends"):
            hear()
        self._enter("between")

    def _update_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.segment.name == "between":
            self.segment.name = "update"
        for hear in self._hearing("update_begins"):
            hear(optimizer)
        self._enter("update")

    def _update_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.segment.name == "between":  # a closure ran its backward inside the update
            self.segment.name = "update"
        for hear in self._hearing("update_ends"):
            hear(optimizer)
        if self._backwards:  # a hook in backward updated a parameter as soon as it had its gradient
            self._enter("backward")
            return
        self._marks = [(0, "")]
        self._enter("load")

    def find(self, model: torch.nn.Module) -> None:
        """Registers a model. From the second on, module names get the model's class as a prefix."""
        prefix = "" if not self.models else f"{type(model).__name__}."
        self.models[model] = prefix
        for name, module in model.named_modules():
            self.names.setdefault(module, (prefix + name).rstrip("."))
        for hear in self._hearing("model_found"):
            hear(model, prefix)

    def _wraps_known(self, model: torch.nn.Module) -> bool:
        """Does a model only wrap a known one, as DDP does? Then it gets the same name."""
        if not any(child in self.models for child in model.children()):
            return False
        self.models[model] = self.names[model] = ""
        return True

    def _name(self, module: torch.nn.Module) -> str:
        return self.names.get(module, f"({type(module).__name__})")

    def _mark(self) -> None:
        """Notes that the current innermost module makes all autograd nodes from here on."""
        if self._marks_nodes:
            self._marks.append((next_node(), self._name(self._calls[-1][0]) if self._calls else ""))


def _has_parameters(module: torch.nn.Module) -> bool:
    return next(module.parameters(), None) is not None
