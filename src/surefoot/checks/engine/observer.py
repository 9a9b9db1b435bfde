"""An observer watches one subject of a loop: it defines a method for each event that it wants to hear."""

from __future__ import annotations

import functools
from collections.abc import Callable, Set
from contextlib import ExitStack
from typing import Any, ClassVar, Self

from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph
from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.events.listener import Listener


class Observer(Listener):
    """Watches one subject. The bus calls only the methods that a subclass defines.

    `__init__` may ask for other observers by their classes; these are created first. If two observers depend on the
    order in which they get an event, one names the other in `after` or `before`. An observer that `stays` keeps working
    while the others rest: it is entered first and exited last. A loop calls torch functions thousands of times: an
    observer that needs few of them names those in `functions`, and if it only needs them while tensors are read, sets
    `reads`.
    """

    after: ClassVar[tuple[type[Observer], ...]] = ()
    before: ClassVar[tuple[type[Observer], ...]] = ()
    stays: ClassVar[bool] = False
    functions: ClassVar[Set[str] | None] = None
    """The names of the functions of which `called` hears; None for all."""
    reads: ClassVar[bool] = False
    """`called` hears nothing while `scene.close` is false."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def graph_seen(self, graph: Graph) -> None:
        """A gradient of this graph is about to be computed, by a backward or by `torch.autograd.grad`."""

    def update_left_out(self, optimizer: Optimizer) -> None:
        """A gradient scaler skipped an update. Whatever was collected for that update is over."""

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """A torch function has returned."""

    def clearing(self) -> None:
        """Gradients are about to be cleared."""

    def gradients_discarded(self) -> None:
        """Gradients were cleared before any update used them, for example those of an attack or a measurement."""

    def saving(self, contents: Contents, file: object) -> None:
        """`torch.save` is about to write these contents to a file."""

    def file_loaded(self, contents: Contents) -> None:
        """`torch.load` has read these contents."""

    def settle(self) -> None:
        """Facts are about to be collected. Do here what needs all optimizers to be known."""

    def follow(self, owner: Any, name: str, *, before: Callable[..., Any] | None = None, after: Any = None) -> None:
        """Calls `before(*args)` and `after(result, *args)` around every call of a torch function."""
        plain = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        before = before and self.scene.failsafe.callback(before)
        after = after and self.scene.failsafe.callback(after)

        @functools.wraps(plain)
        def followed(*args: object, **kwargs: object) -> Any:
            if before is not None:
                before(*args, **kwargs)
            result = plain(*args, **kwargs)
            if after is not None:
                after(result, *args, **kwargs)
            return result

        setattr(owner, name, followed)
        self._entered.callback(setattr, owner, name, plain)


EVENTS = frozenset(
    name for kind in (Listener, Observer) for name, value in vars(kind).items() if callable(value) and name[0] != "_"
) - {"follow", "settle"}
"""The names of the methods that the bus may call."""


def hears(kind: type[Observer], event: str) -> bool:
    """Does this class, or a base class below `Observer`, define a method for the event?"""
    return getattr(kind, event) is not getattr(Observer, event)
