"""A look inside one step: every module that ran, and every tensor that has a name."""

from dataclasses import dataclass

from surefoot.records.layers import Layer
from surefoot.records.shown import Shown


@dataclass(frozen=True)
class Form:
    """The shape, number format and device of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    strides: tuple[int, ...] | None = None
    """In elements. None if the tensor is contiguous."""


def form_text(form: Form) -> str:
    """`4x16x32 bfloat16`, with strides and a device where they are not the usual ones."""
    shape = "x".join(map(str, form.shape)) or "scalar"
    strides = "" if form.strides is None else f" strides {'x'.join(map(str, form.strides))}"
    return f"{shape} {form.dtype}{strides}{'' if form.device == 'cpu' else f' {form.device}'}"


@dataclass(frozen=True)
class LookedModule:
    """A module that ran in the step."""

    name: str
    """As in the model; empty for the model itself."""
    kind: str
    outputs: tuple[Form, ...]
    """Of its first call."""
    calls: int
    parameters: int
    """Of its own, without those of the modules inside it."""
    trainable: int
    layer: Layer | None = None
    """Its gradient, update and activations, if it is a layer."""


@dataclass(frozen=True)
class LookedTensor:
    """A parameter, a buffer, an input of the model, or an output of a module."""

    name: str
    form: Form
    made_by: str
    storage_bytes: int
    offset: int
    """Where it begins in its storage, in elements."""
    requires_grad: bool
    shares: tuple[str, ...]
    """Other tensors with the same storage."""
    read_by: tuple[str, ...]
    """Modules that were called with it, and operations that take it in the graph of the loss."""


@dataclass(frozen=True)
class GraphNode:
    """An operation in the graph of autograd."""

    operation: str
    """As autograd names it: `AddmmBackward0`."""
    module: str
    """That it ran in; empty if in none."""
    takes: tuple[int, ...]
    """The operations whose results it takes, as places in the list."""
    leaf: str = ""
    """The name and form of a parameter or input that gets a gradient, if this adds it up."""


@dataclass(frozen=True)
class Looked(Shown):
    """One step, looked at."""

    of: str
    loss: float | None
    modules: tuple[LookedModule, ...]
    tensors: tuple[LookedTensor, ...]
    graph: tuple[GraphNode, ...] = ()
    """The operations behind the loss; the loss itself comes first."""

    def tensor(self, name: str) -> LookedTensor | None:
        """The tensor of this name."""
        return next((each for each in self.tensors if each.name == name), None)
