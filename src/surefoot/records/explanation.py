"""An explanation of a raised error: what met, where each value came from, and the cause."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A line of user code and its text."""

    file: str
    line: int
    code: str


@dataclass(frozen=True)
class Met:
    """A value that took part in the call that failed."""

    name: str
    """As the user's code writes it: `x`, `batch["label"]`; for parameters the name in the model: `head.weight`."""
    role: str
    """The name of the argument that it was passed as: `target`. Empty if it has none."""
    kind: str
    """`tensor`, or the type of another value."""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    device: str = ""
    strides: tuple[int, ...] | None = None
    low: int | None = None
    """The lowest value of a tensor of integers, and the highest."""
    high: int | None = None
    requires_grad: bool = False
    made: tuple[Place, ...] = ()
    """The lines that made it, nearest first."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """The shapes of the tensors in a list or tuple."""
    value: str = ""
    """A plain value as text."""

    @property
    def is_tensor(self) -> bool:
        return self.kind == "tensor"


@dataclass(frozen=True)
class FailedModule:
    """The innermost module whose forward was running."""

    path: str
    kind: str
    made: tuple[Place, ...] = ()
    """The lines that define it, nearest first."""
    numbers: tuple[tuple[str, int], ...] = ()
    """Its settings that are whole numbers: `in_features`, `num_embeddings`."""


@dataclass(frozen=True)
class Write:
    """A tensor that was written in place after an operation had saved it for the backward."""

    saved_by: str
    saved: Place | None
    by: str
    written: Place | None
    is_update: bool = False
    """An optimizer's step wrote it."""


@dataclass(frozen=True)
class Cut:
    """An operation whose result has no graph although its inputs have one."""

    by: str
    place: Place | None
    called: Place | None = None
    """The line of the loop that runs it."""
    no_grad: bool = False
    """Gradients were disabled."""


@dataclass(frozen=True)
class Freed:
    """A part of the graph that an earlier backward has freed."""

    name: str
    """The value that connects the loss with it. Empty if it is not known."""
    made: tuple[Place, ...] = ()
    carried: bool = False
    """The value comes from an earlier iteration of the loop."""
    whole: bool = False
    """The whole graph is freed: this loss had its backward before."""
    earlier: tuple[Place, ...] = ()
    """The lines that run a backward."""


@dataclass(frozen=True)
class Raised:
    """The facts of a raised error, as the causes read them."""

    error: str
    message: str
    function: str = ""
    """The function of torch that was called, or the operator."""
    place: Place | None = None
    """The innermost line of user code."""
    module: FailedModule | None = None
    met: tuple[Met, ...] = ()
    is_backward: bool = False
    write: Write | None = None
    cut: Cut | None = None
    freed: Freed | None = None
    in_worker: bool = False
    keys: tuple[str, ...] = ()
    """The keys that a mapping has, if one was missing."""
    callee: Place | None = None
    """The user's function or class that was called with other arguments than it takes."""
    signature: str = ""

    @property
    def tensors(self) -> tuple[Met, ...]:
        """The tensors that met."""
        return tuple(each for each in self.met if each.is_tensor)

    def role(self, *names: str) -> Met | None:
        """What was passed as an argument of one of these names."""
        return next((each for each in self.met if each.role in names), None)

    def setting(self, *names: str) -> int | None:
        """A number in the settings of the module: the first of these names that it has."""
        numbers = dict(self.module.numbers) if self.module is not None else {}
        return next((numbers[name] for name in names if name in numbers), None)

    @property
    def where(self) -> str:
        """The module that failed, for sentences; its type if it has no name."""
        module = self.module
        return "the call" if module is None else f"`{module.path}` ({module.kind})" if module.path else module.kind


@dataclass(frozen=True)
class Cause:
    """Why it was raised, the lines at fault, and what to change."""

    said: str
    remedy: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """An error in terms of the user's code. Without a cause it only lists what met."""

    raised: Raised
    cause: Cause | None = None
