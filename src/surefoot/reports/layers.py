"""The layers of a run as text: gradients, updates and activations in the last measured step, and what is wrong."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.costs.layers import by_verdict, verdicts_of
from surefoot.records.layers import Layer, LayersRow
from surefoot.reports.parts import table_of
from surefoot.units import counted

_NARROW = (0, 2, 3, 4, 5, 6, 7)
"""The columns that a terminal of 80 characters has room for."""
COLUMNS = ("layer", "kind", "gradient", "update/weight", "mean", "deviation", "zeros", "saturated", "verdict")
SHOWN = 12
"""How many layers a terminal shows: those with a verdict, and others from the first to the last."""


def layers_text(rows: Sequence[LayersRow]) -> list[RenderableType]:
    """A short table of the last measured step, and the layers of each verdict."""
    if not rows:
        return []
    last, verdicts = rows[-1], verdicts_of(rows)
    shown = _shown(list(last.layers), set(verdicts))
    table = figures_table({name: last.layers[name] for name in shown})
    of = f", {len(shown)} of {len(last.layers)}" if len(shown) < len(last.layers) else ""
    head = f"\nlayers at step {last.step}{of}; {counted(len(rows), 'measured step')}"
    said = [Text(f"{verdict}: {layers}", style="yellow") for verdict, layers in by_verdict(rows).items()]
    return [Text(head, style="bold"), table, *said]


def layer_figures(layer: Layer | None) -> list[str]:
    """Gradient, update, mean, deviation, zeros and saturated as text; `-` where there was nothing to measure."""
    if layer is None:
        return ["-"] * 6
    numbers = (layer.gradient_norm, layer.update_ratio, layer.mean, layer.deviation)
    shares = (layer.zeros, layer.saturated)
    return [
        *("-" if each is None else f"{each:.3g}" for each in numbers),
        *("-" if each is None else f"{each:.1%}" for each in shares),
    ]


def layer_cells(name: str, layer: Layer, verdict: str) -> list[str]:
    """One row of the table, in the order of `COLUMNS`."""
    return [name or "(model)", layer.kind, *layer_figures(layer), verdict]


def figures_table(layers: Mapping[str, Layer]) -> Table:
    """The figures of layers, as wide as a terminal of 80 characters has room for. Verdicts stand elsewhere."""
    table = table_of(*(COLUMNS[index].replace("/", "/\n") for index in _NARROW))
    table.columns[0].overflow = "fold"
    for name, layer in layers.items():
        cells = layer_cells(name, layer, "")
        table.add_row(*(cells[index] for index in _NARROW))
    return table


def _shown(names: list[str], wrong: set[str]) -> list[str]:
    """At most `SHOWN` layers in the order of the model. Half of them may be layers with a verdict."""
    if len(names) <= SHOWN:
        return names
    first = [name for name in names if name in wrong][: SHOWN // 2]
    others = [name for name in names if name not in wrong] or [name for name in names if name not in first]
    most = min(SHOWN - len(first), len(others))
    spread = {others[round(at * (len(others) - 1) / max(1, most - 1))] for at in range(most)}
    return [name for name in names if name in spread or name in first]
