"""An observer watches one subject of a loop: it hears events by methods of their names, and hands over facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import Graph
from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.events.listener import Listener
from surefoot.torch_inside.patches import patch

if TYPE_CHECKING:
    from typing_extensions import Self


class Observer(Listener):
    """Watches one subject. The bus calls only the methods that a subclass defines.

    `__init__` may ask for other observers by their classes; these are created first. If two observers depend on the
    order in which they get an event, one names the other in `after` or `before`. An observer that `stays` keeps working
    while the others rest: it is entered first and exited last. A loop calls torch functions thousands of times: an
    observer that needs few of them names those in `functions`. If it only needs them while tensors are read, it sets
    `reads`; if it only follows outputs, gradients or updates, so that nothing can happen while data is made, `waits`.
    """

    after: ClassVar[tuple[type[Observer], ...]] = ()
    before: ClassVar[tuple[type[Observer], ...]] = ()
    stays: ClassVar[bool] = False
    functions: ClassVar[Set[str] | None] = None
    """The names of the functions of which `called` hears; None for all."""
    reads: ClassVar[bool] = False
    """`called` hears nothing while `scene.close` is false."""
    waits: ClassVar[bool] = False
    """`called` hears nothing before a model was called or something with a gradient was computed."""

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

    def facts(self) -> Iterable[object]:
        """Yields its part of the facts: records such as `LossFacts`, with the fields that it knows.

        All observers have settled. Records of one class are merged: see `checks.facts.merged`.
        """
        return ()

    def probed(self) -> Iterable[object]:
        """Yields what it finds out by disturbing copies of models or data. All observers have handed over `facts`."""
        return ()

    def follow(self, owner: Any, name: str, *, before: Callable[..., Any] | None = None, after: Any = None) -> None:
        """Calls `before(*args)` and `after(result, *args)` around every call of a torch function."""
        before = before and self.scene.failsafe.callback(before)
        after = after and self.scene.failsafe.callback(after)

        def make(plain: Callable[..., Any]) -> Callable[..., Any]:
            def followed(*args: object, **kwargs: object) -> Any:
                if before is not None:
                    before(*args, **kwargs)
                result = plain(*args, **kwargs)
                if after is not None:
                    after(result, *args, **kwargs)
                return result

            return followed

        self._entered.callback(patch(owner, name, make))


EVENTS = frozenset(
    name for kind in (Listener, Observer) for name, value in vars(kind).items() if callable(value) and name[0] != "_"
) - {"follow", "settle", "facts", "probed"}
"""The names of the methods that the bus may call."""


def hears(kind: type[Observer], event: str) -> bool:
    """Does this class, or a base class below `Observer`, define a method for the event?"""
    return getattr(kind, event) is not getattr(Observer, event)
