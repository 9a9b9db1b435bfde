"""A look inside a step as text: its modules, its layers, or one of its tensors."""

from difflib import get_close_matches

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.errors import RunError
from surefoot.records.looked import Looked, LookedModule, form_text
from surefoot.reports.layers import figures_table
from surefoot.reports.parts import table_of
from surefoot.units import bytes_text

_MOST = 12
"""How many readers, and tensors that share a storage, are listed."""


def looked_text(looked: Looked, *, depth: int | None = None) -> RenderableType:
    """What every module returned, and the figures of the layers; down to a depth."""
    shown = [each for each in looked.modules if depth is None or _depth(each) <= depth]
    table = table_of("module", "kind", "output", "parameters")
    for column in (1, 2):
        table.columns[column].justify = "left"
    table.columns[0].overflow = "fold"
    forwards = min((each.calls for each in looked.modules), default=1)
    for each in shown:
        table.add_row(
            each.name or "(model)",
            _kind(each, forwards),
            _outputs(each),
            f"{each.parameters:,}" if each.parameters else "",
        )
    layers = {each.name: each.layer for each in shown if each.layer is not None}
    loss = "" if looked.loss is None else f", loss {looked.loss:.4g}"
    times = f" of {forwards} forwards" if forwards > 1 else ""
    hidden = len(looked.modules) - len(shown)
    more = [Text(f"{hidden} modules deeper inside are not shown", style="dim")] if hidden else []
    return Group(
        Text(f"one step{times}: {looked.of}{loss}", style="bold"),
        table,
        *more,
        Text("\nlayers", style="bold"),
        figures_table(layers),
    )


def tensor_text(looked: Looked, name: str) -> RenderableType:
    """One tensor: its storage, what shares it, who made it and who reads it."""
    found = looked.tensor(name)
    if found is None:
        names = [each.name for each in looked.tensors]
        near = get_close_matches(name, names, n=4, cutoff=0.4) or names[:4]
        raise RunError(f"the step has no tensor {name!r}; did you mean {', '.join(near)}?")
    strides = "contiguous" if found.form.strides is None else f"strides {list(found.form.strides)}, not contiguous"
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim")
    lines.add_column()
    for label, value in (
        ("tensor", form_text(found.form)),
        ("layout", f"{strides}; begins at element {found.offset:,} of a storage of {bytes_text(found.storage_bytes)}"),
        ("gradient", "requires one" if found.requires_grad else "requires none"),
        ("made by", found.made_by),
        ("shares its storage with", _listed(found.shares)),
        ("read by", _listed(found.read_by)),
    ):
        lines.add_row(label, value)
    return Group(Text(name, style="bold"), lines)


def _listed(names: tuple[str, ...]) -> str:
    more = f", and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return (", ".join(names[:_MOST]) or "nothing") + more


def _depth(module: LookedModule) -> int:
    return module.name.count(".") + bool(module.name)


def _kind(module: LookedModule, forwards: int) -> str:
    """The class of a module, and how often each forward of the model calls it, if more than once."""
    frozen = " (frozen)" if module.parameters and not module.trainable else ""
    calls = module.calls / forwards
    return module.kind + frozen + (f", {calls:.3g} calls" if calls > 1 else "")


def _outputs(module: LookedModule) -> str:
    return "\n".join(map(form_text, module.outputs)) or "no tensor"
