"""Which phase of a step is running and in which module, seen from outside: no marks in the loop.

Seen are: calls of modules (torch's global forward hooks), `torch.autograd.backward` (wrapped while
following), autograd's graph task, and `Optimizer.step` (torch's global optimizer hooks). Real and fake
tensors alike, any optimizer, any loop.

    load -> forward -> loss -> backward -> update -> load ...

`init` stands before the first forward of a model that was not known beforehand, `evaluate` for a forward
without gradients. What runs after a backward is named by what follows it: `load` if a forward does,
`update` if an optimizer does (unscaling and clipping belong to the update).
"""

from __future__ import annotations

import functools
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack


class Segment:
    """An uninterrupted stretch of one phase. Its name can be decided after it has ended."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Listener:
    """What can be heard of a loop; a listener overrides what it wants to hear."""

    def entered(self, segment: Segment) -> None: ...
    def model_found(self, model: torch.nn.Module, prefix: str) -> None: ...
    def forward_begins(self, model: torch.nn.Module) -> None: ...
    def model_called(self, model: torch.nn.Module, args: tuple[Any, ...]) -> None: ...
    def module_begins(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None: ...
    def module_called(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None: ...
    def model_returned(self, model: torch.nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None: ...
    def forward_ends(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def fetch_begins(self) -> None: ...
    def batch_fetched(self, seconds: float) -> None: ...
    def backward_begins(self, losses: Any) -> None: ...
    def backward_ends(self) -> None: ...
    def rng_saved(self, state: torch.Tensor) -> None: ...
    def resized(self, storage: torch.UntypedStorage) -> None: ...
    def update_begins(self, optimizer: torch.optim.Optimizer) -> None: ...
    def update_ends(self, optimizer: torch.optim.Optimizer) -> None: ...


class _Unsaved:
    """A hook that does nothing in copies of its model and in files that hold one, nor needs surefoot there."""

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
        self.models: dict[torch.nn.Module, str] = {}
        self.names: dict[torch.nn.Module, str] = {}
        self.segment = Segment("init" if model is None else "load")
        self._given = model
        self._calls: list[tuple[torch.nn.Module, bool]] = []
        self._forwards = self._backwards = 0
        self._marks: list[tuple[int, str]] = [(0, "")]
        self._entered, self._calls_heard = ExitStack(), ExitStack()
        self._is_deaf = self._shards_seen = False

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
        """Hears calls of every module, as it does until it is told otherwise."""
        self._calls_heard.close()
        self._calls_heard.callback(register_module_forward_pre_hook(self._call_begins).remove)
        follow = register_module_forward_hook(self._call_ends, with_kwargs=True, always_call=True)
        self._calls_heard.callback(follow.remove)

    def only_models(self) -> None:
        """From now on hears only calls of the models found so far: phases stay known, modules inside do not."""
        self._calls_heard.close()
        for model in self.models:
            self._calls_heard.callback(model.register_forward_pre_hook(_Unsaved(self._call_begins)).remove)
            follow = model.register_forward_hook(_Unsaved(self._call_ends), with_kwargs=True, always_call=True)
            self._calls_heard.callback(follow.remove)

    def now(self) -> Segment:
        """The segment that is running."""
        if (self._backwards or _in_graph_task()) and self.segment.name != "backward":
            self._enter("backward")
        return self.segment

    def module(self) -> str:
        """The innermost module at work; in backward, the one whose forward made the running node."""
        if self._calls:
            return self._name(self._calls[-1][0])
        node = torch._C._current_autograd_node()
        return "" if node is None else self.maker(node)

    def running(self) -> list[torch.nn.Module]:
        """The modules at work, from the outermost on."""
        return [module for module, _ in self._calls]

    def in_model(self) -> bool:
        """Is the forward of a model running?"""
        return self._forwards > 0

    def recomputing(self) -> bool:
        """Is a module's forward running again inside the backward?"""
        return bool(self._calls) and self.now().name == "backward"

    def maker(self, node: torch.autograd.graph.Node) -> str:
        """The innermost module whose forward made a node of this step's graph."""
        number = node._sequence_nr()  # autograd numbers the nodes of a thread as forward makes them
        return self._marks[bisect_right(self._marks, number, key=lambda mark: mark[0]) - 1][1]

    def _enter(self, name: str) -> None:
        self.segment = Segment(name)
        for listener in self.listeners:
            listener.entered(self.segment)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """What is run inside is no part of the loop: no listener hears of it and no dispatch mode sees it."""
        modes = _disable_current_modes() if _get_current_dispatch_mode_stack() else nullcontext()
        self._is_deaf = True
        try:
            with modes:
                yield
        finally:
            self._is_deaf = False

    @property
    def is_deaf(self) -> bool:
        """Is nothing heard now? Inside `torch.func`'s `grad` or `vmap` tensors have no memory to be asked for."""
        return self._is_deaf or torch._C._functorch.peek_interpreter_stack() is not None

    def _call_begins(self, module: torch.nn.Module, args: Any) -> None:
        if self.is_deaf:
            return
        is_model = not self._forwards and not self._backwards and _has_parameters(module)
        self._calls.append((module, is_model))
        if is_model:
            self._forward_begins(module)
            for listener in self.listeners:
                listener.model_called(module, args)
        for listener in self.listeners:
            listener.module_begins(module, args)
        self._mark()

    def _call_ends(self, module: torch.nn.Module, args: Any, *rest: Any) -> None:
        if self.is_deaf:
            return
        kwargs = rest[0] if len(rest) == 2 else {}  # after an exception torch leaves them out
        returned = len(rest) == 2
        if returned:
            for listener in self.listeners:
                listener.module_called(module, args, rest[1])
        while self._calls:  # an exception inside a module can skip the end of its children
            called, is_model = self._calls.pop()
            if is_model:
                if returned and called is module:
                    for listener in self.listeners:
                        listener.model_returned(module, args, kwargs, rest[1])
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
        for listener in self.listeners:
            listener.forward_begins(model)
        self._enter("forward" if torch.is_grad_enabled() else "evaluate")

    def _forward_ends(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        self._forwards -= 1
        for listener in self.listeners:
            listener.forward_ends(model, args, kwargs)
        self._enter("loss" if self.segment.name == "forward" else self.segment.name)

    def _follow_backward(self) -> None:
        plain = torch.autograd.backward

        @functools.wraps(plain)
        def followed(tensors: Any, *args: Any, **kwargs: Any) -> None:
            self._backward_begins(tensors)
            try:
                plain(tensors, *args, **kwargs)
            finally:
                self._backward_ends()

        torch.autograd.backward = followed
        self._entered.callback(setattr, torch.autograd, "backward", plain)

    def _follow_random_state(self) -> None:
        """Recomputation keeps the generator's state for each block; no operator makes that tensor.

        Where no mode is to see what happens, as when data is built, neither is this.
        """
        plain = torch.get_rng_state

        @functools.wraps(plain)
        def followed() -> torch.Tensor:
            state = plain()
            for listener in self.listeners if _get_current_dispatch_mode_stack() else ():
                listener.rng_saved(state)
            return state

        torch.get_rng_state = followed
        self._entered.callback(setattr, torch, "get_rng_state", plain)

    def _follow_loaders(self) -> None:
        """A `DataLoader` is asked for its next batch; how long it takes is how long the loop waits."""
        kind = torch.utils.data.dataloader._BaseDataLoaderIter
        plain = kind.__next__

        @functools.wraps(plain)
        def followed(batches: Any) -> Any:
            for listener in self.listeners:
                listener.fetch_begins()
            began = time.perf_counter()
            try:
                return plain(batches)
            finally:
                lasted = time.perf_counter() - began
                for listener in self.listeners:
                    listener.batch_fetched(lasted)

        kind.__next__ = followed  # type: ignore[method-assign, assignment]
        self._entered.callback(setattr, kind, "__next__", plain)

    def _follow_resizes(self) -> None:
        """FSDP takes and gives back the memory of a storage while tensors go on referring to it."""
        plain = torch.UntypedStorage.resize_

        @functools.wraps(plain)
        def followed(storage: torch.UntypedStorage, size: int) -> Any:
            resized = plain(storage, size)
            for listener in self.listeners:
                listener.resized(storage)
            return resized

        torch.UntypedStorage.resize_ = followed  # type: ignore[method-assign, assignment]
        self._entered.callback(setattr, torch.UntypedStorage, "resize_", plain)

    def shards_seen(self) -> None:
        """A sharded tensor is at work. What DTensor runs on whole shapes, to know those of results, is no work."""
        if self._shards_seen:
            return
        from torch.distributed.tensor._sharding_prop import ShardingPropagator

        self._shards_seen = True
        plain, fakes = ShardingPropagator._propagate_tensor_meta_non_cached, FakeTensorMode()

        @functools.wraps(plain)
        def unseen(*args: Any) -> Any:
            with _disable_current_modes(), fakes:  # else it makes a mode each time, which takes longer than the rest
                return plain(*args)

        ShardingPropagator._propagate_tensor_meta_non_cached = unseen  # type: ignore[method-assign, assignment]
        self._entered.callback(setattr, ShardingPropagator, "_propagate_tensor_meta_non_cached", plain)
        self._entered.callback(setattr, self, "_shards_seen", False)

    def _backward_begins(self, losses: Any) -> None:
        self._backwards += 1
        if self._backwards > 1:  # reentrant recomputation runs a backward inside the backward
            return
        if self.segment.name == "between":
            self.segment.name = "loss"
        for listener in self.listeners:
            listener.backward_begins(losses)
        self._enter("backward")

    def _backward_ends(self) -> None:
        self._backwards -= 1
        if self._backwards:
            return
        for listener in self.listeners:
            listener.backward_ends()
        self._enter("between")

    def _update_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.segment.name == "between":
            self.segment.name = "update"
        for listener in self.listeners:
            listener.update_begins(optimizer)
        self._enter("update")

    def _update_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.segment.name == "between":  # a closure ran its backward inside the update
            self.segment.name = "update"
        for listener in self.listeners:
            listener.update_ends(optimizer)
        self._marks = [(0, "")]
        self._enter("load")

    def find(self, model: torch.nn.Module) -> None:
        """Takes note of a model; a second one gets its class as a prefix to its modules' names."""
        prefix = "" if not self.models else f"{type(model).__name__}."
        self.models[model] = prefix
        for name, module in model.named_modules():
            self.names.setdefault(module, (prefix + name).rstrip("."))
        for listener in self.listeners:
            listener.model_found(model, prefix)

    def _wraps_known(self, model: torch.nn.Module) -> bool:
        """Is a model that is called only the dress of a known one, as DDP is? Then it bears that one's name."""
        if not any(child in self.models for child in model.children()):
            return False
        self.models[model] = self.names[model] = ""
        return True

    def _name(self, module: torch.nn.Module) -> str:
        return self.names.get(module, f"({type(module).__name__})")

    def _mark(self) -> None:
        """From this autograd node on, nodes are made by the module that is innermost now."""
        self._marks.append((next_node(), self._name(self._calls[-1][0]) if self._calls else ""))


def tell(notes: dict[str, Any], *, at: int | str) -> None:
    """Writes a rank's notes of a moment where other ranks find them: in the store of the process group."""
    if dist.get_backend() != "fake":
        dist.distributed_c10d._get_default_store().set(f"surefoot/{at}/{dist.get_rank()}", json.dumps(notes))


def told(*, at: int | str, wait_seconds: float) -> list[dict[str, Any]]:
    """The notes of the other ranks of that moment; of none, if one has written nothing in time."""
    if dist.get_backend() == "fake":
        return []
    store, others = dist.distributed_c10d._get_default_store(), []
    for rank in range(dist.get_world_size()):
        if rank != dist.get_rank():
            try:
                store.wait([f"surefoot/{at}/{rank}"], timedelta(seconds=wait_seconds))
            except RuntimeError:
                return []
            others.append(json.loads(store.get(f"surefoot/{at}/{rank}")))
    return others


def innermost_mode() -> Any:
    """The dispatch mode that was entered last; None if there is none."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return modes[-1] if modes else None


def group_of(operands: Any) -> str:
    """The group of ranks that a collective is for: the dimension of a mesh, or `all`; by its operands."""
    for operand in reversed(operands):
        group = None
        if isinstance(operand, str):  # of a functional collective it is the last
            group = torch.distributed.distributed_c10d._resolve_process_group(operand)  # type: ignore[arg-type]
        elif isinstance(operand, torch.ScriptObject) and _kind(operand) == "ProcessGroup":
            group = torch.distributed.ProcessGroup.unbox(operand)
        if group is not None:
            return "all" if group.group_desc == "default_pg" else group.group_desc.removeprefix("mesh_")
    return ""


def _kind(operand: torch.ScriptObject) -> str:
    return operand._type().name()  # type: ignore[attr-defined]


def _has_parameters(module: torch.nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _in_graph_task() -> bool:
    return torch._C._current_graph_task_id() != -1


def is_profiling() -> bool:
    """Is torch's profiler on?"""
    return torch.autograd._profiler_enabled()


def next_node() -> int:
    """The number that the next node of this thread will have."""
    return torch._C._autograd._get_sequence_nr()


def number(node: torch.autograd.graph.Node) -> int:
    """The place of a node among all that this thread's forwards have made; of no use for a leaf's."""
    return node._sequence_nr()


def softmax_dim(node: torch.autograd.graph.Node) -> int:
    """The dimension that a softmax ran over; torch keeps it without its sign."""
    dim: int = node._saved_dim  # type: ignore[attr-defined]
    return (dim + (1 << 63)) % (1 << 64) - (1 << 63)


def factors_of(node: torch.autograd.graph.Node) -> list[torch.Tensor]:
    """The tensors that a product keeps for its backward; none once that has freed them."""
    kept = []
    for name in ("_saved_self", "_saved_other"):
        with suppress(AttributeError, RuntimeError):
            kept.append(getattr(node, name))
    return [each for each in kept if isinstance(each, torch.Tensor)]


@contextmanager
def aside() -> Iterator[None]:
    """What is computed inside is seen by no mode and has no graph."""
    modes = _disable_current_modes() if _get_current_dispatch_mode_stack() else nullcontext()
    with modes, torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def writes(tensor: torch.Tensor) -> int:
    """How often a tensor has been written in place; one made in inference mode does not count."""
    return 0 if tensor.is_inference() else tensor._version


def sums_gradients(func: Any, args: Any) -> bool:
    """Is autograd adding up the gradients of a tensor that was used twice, and could it reuse the first?

    It adds in place when it alone holds the first, but never while a dispatch mode is on. Seen from such a mode, a
    tensor that only the engine holds counts four references, and its
    storage two.
    """
    if func is not torch.ops.aten.add.Tensor or not _in_graph_task() or torch.is_grad_enabled():
        return False  # with gradients on, a forward is being recomputed
    first, second = args[:2]
    if not isinstance(second, torch.Tensor) or first.shape != second.shape or not _is_dense(first):
        return False
    return first._use_count() == 4 and torch._C._storage_Use_Count(first.untyped_storage()._cdata) == 2


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
