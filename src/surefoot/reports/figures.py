"""The charts of a report, as plain data for plotly.js: traces and layouts without the colours of a theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from typing import Any

from surefoot.records.layers import Layer, LayersRow
from surefoot.records.report import HELD_OUT, Curve, ModuleShare, Report, Sheet
from surefoot.reports.labels import labels_apart
from surefoot.reports.modules import repeated_as_one
from surefoot.reports.visible import visible
from surefoot.units import bytes_text, flops_text, seconds_text

Figure = dict[str, Any]
ACCOUNTS = {
    "parameters": "#4477aa",
    "unsharded-parameters": "#2b4d73",
    "optimizer": "#66aadd",
    "averages": "#557f99",
    "buffers": "#99bbcc",
    "gradients": "#aa7744",
    "unsharded-gradients": "#6e4a24",
    "inputs": "#88aa66",
    "activations": "#ee8844",
    "offloaded": "#c9a37c",
    "temporary": "#cc5566",
    "workspace": "#9966aa",
    "communication": "#7d8794",
}
"""The accounts with their colours, from those that stay (bottom) to those that come and go (top)."""
WIDE = "where there is room"
"""The name of annotations that a narrow screen hides."""
MODULES = ("#64748b", "#7c8aa0", "#94a3b8", "#8597ad")
"""Of modules in a tree: greys, because a module is no account."""
_MANY = 40
"""A curve of as many points is smoothed."""
_EXACT = ("learning rate", "memory held")
"""Curves without noise: they are drawn as they are."""
COLOURS = ("#3b7dd8", "#e4812b", "#3a9d5d", "#b45ac8", "#c8463c", "#7d7d3c")
"""The colours of runs, in order."""


def as_text(name: str) -> str:
    """Escapes a name from a record, because Plotly interprets links, tags and `%{...}` in any text."""
    return escape(visible(name), quote=False).replace("{", "&#123;")


def curve_figures(sheets: Sequence[Sheet]) -> dict[str, Figure]:
    """One figure for each curve, with all runs that have it."""
    names = list(dict.fromkeys(curve.name for sheet in sheets for curve in sheet.curves))
    shown = dict.fromkeys(name.removeprefix(HELD_OUT) for name in names)
    return {name: _curve_figure(name, sheets) for name in shown}


def _curve_figure(name: str, sheets: Sequence[Sheet]) -> Figure:
    traces: list[dict[str, Any]] = []
    unit = ""
    for colour, sheet in zip(COLOURS * len(sheets), sheets, strict=False):
        for curve in sheet.curves:
            if curve.name.removeprefix(HELD_OUT) == name:
                held_out, unit = curve.name != name, curve.unit
                label = as_text(sheet.name) + (" held-out" if held_out else "")
                traces += _curve_traces(curve, label, colour, held_out=held_out)
    axis: dict[str, Any] = {
        "title": {"text": as_text(unit)},
        "rangemode": "tozero" if name not in ("loss",) else "normal",
    }
    if unit == "bytes":
        axis |= _byte_ticks(max(max(trace["y"]) for trace in traces))
    if unit == "share":
        axis |= {"tickformat": ".1~%", "title": {"text": ""}}
    layout = {
        "xaxis": {"title": {"text": "step"}},
        "yaxis": axis,
        "showlegend": sum("legendgroup" not in t for t in traces) > 1,
    }
    return {"data": traces, "layout": layout}


def _curve_traces(curve: Curve, label: str, colour: str, *, held_out: bool) -> list[dict[str, Any]]:
    """A curve as it was measured; if it has many points, thin, and its moving average over it."""
    few = held_out or len(curve.steps) < 3
    raw: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": label,
        "x": curve.steps,
        "y": curve.values,
        "line": {"color": colour, "width": 1.4, **({"dash": "dot"} if held_out else {})},
    }
    if held_out or len(curve.steps) < _MANY or curve.name in _EXACT:
        return [raw]
    thin = {**raw, "opacity": 0.3, "hoverinfo": "skip", "showlegend": False, "legendgroup": label}
    return [thin, {**raw, "y": smoothed(curve.values), "line": {"color": colour, "width": 2}}]


def smoothed(values: Sequence[float]) -> list[float]:
    """A moving average over the last twentieth of the points, by exponential weights that begin unbiased."""
    keep = 1 - 20 / len(values)
    mean, weight, found = 0.0, 0.0, []
    for value in values:
        mean, weight = keep * mean + (1 - keep) * value, keep * weight + (1 - keep)
        found.append(mean / weight)
    return found


def timeline_figure(sheet: Sheet) -> Figure | None:
    """Live bytes over one step, stacked by account, with its phases and its peak."""
    timeline = sheet.timeline
    if timeline is None or not timeline.phases:
        return None
    known = [name for name in ACCOUNTS if name in timeline.accounts]
    names = [*known, *(name for name in timeline.accounts if name not in ACCOUNTS)]
    totals = [sum(amounts) for amounts in zip(*timeline.accounts.values(), strict=True)]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": as_text(name),
            "stackgroup": "live",
            "line": {"width": 0, "shape": "hv", "color": ACCOUNTS.get(name, "#888888")},
            "fillcolor": ACCOUNTS.get(name, "#888888"),
            "y": timeline.accounts[name],
            "text": [bytes_text(amount) for amount in timeline.accounts[name]],
            "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
        }
        for name in names
    ]
    where = sheet.peak.phase if sheet.peak else ""
    moment = f" in {sheet.peak.module}" if sheet.peak and sheet.peak.module else ""
    peak = {
        "x": timeline.peak,
        "y": totals[timeline.peak],
        "text": f"peak {bytes_text(totals[timeline.peak])}<br>{as_text(where + moment)}",
        "ax": 45 if timeline.peak < len(totals) / 2 else -45,  # the label points away from the nearer edge
        "ay": -28,
        "showarrow": True,
        "xanchor": "left" if timeline.peak < len(totals) / 2 else "right",
    }
    shapes, names_of_phases = _bands(timeline.phases)
    layout = {
        "xaxis": {"title": {"text": "as storages come and go"}, "showticklabels": False, "range": [0, len(totals) - 1]},
        "yaxis": {"range": [0, 1.4 * max(totals)], **_byte_ticks(max(totals))},
        "shapes": shapes,
        "annotations": [peak, *names_of_phases],
        "hovermode": "x unified",
        "legend": {"traceorder": "reversed"},
    }
    return {"data": traces, "layout": layout}


def _bands(phases: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Shades every other phase, and names the wide ones."""
    shapes, named, begin = [], [], 0
    for number, (phase, moments) in enumerate(groupby(phases)):
        end = begin + len(list(moments))
        if number % 2:
            shapes.append(
                {"type": "rect", "xref": "x", "yref": "paper", "x0": begin, "x1": end, "y0": 0, "y1": 1,
                 "fillcolor": "#808080", "opacity": 0.08, "line": {"width": 0}, "layer": "below"}
            )  # fmt: skip
        if end - begin >= len(phases) / 12:
            named.append(
                {"x": (begin + end) / 2, "y": 1.0, "yref": "paper", "yanchor": "bottom", "text": as_text(phase),
                 "showarrow": False, "font": {"size": 11}, "name": WIDE if end - begin < len(phases) / 5 else "phase"}
            )  # fmt: skip
        begin = end
    return shapes, named


def tree_figure(
    modules: Sequence[ModuleShare], amount: Callable[[ModuleShare], float], text: Callable[[float], str]
) -> Figure:
    """A tree of modules. The area of each is its amount, including the modules inside it."""
    own = {each.module: amount(each) for each in modules if amount(each) > 0}
    ids = {""}
    for name in own:
        parts = name.split(".") if not name.startswith("(") else [name]
        ids |= {".".join(parts[: depth + 1]) for depth in range(len(parts))}
    order = sorted(ids)
    whole = {
        node: sum(value for name, value in own.items() if not node or name == node or name.startswith(f"{node}."))
        for node in order
    }
    labels = [node.rpartition(".")[2] if node and not node.startswith("(") else node or "step" for node in order]
    parents = [None if not node else node.rpartition(".")[0] if not node.startswith("(") else "" for node in order]
    trace = {
        "type": "treemap",
        "ids": [as_text(node or "step") for node in order],
        "labels": [as_text(label) for label in labels],
        "parents": ["" if parent is None else as_text(parent or "step") for parent in parents],
        "values": [whole[node] for node in order],
        "text": [text(whole[node]) for node in order],
        "branchvalues": "total",
        "textinfo": "label+text",
        "hovertemplate": "%{id}<br>%{text}<br>%{percentRoot:.1%} of the step<extra></extra>",
        "maxdepth": 4,
        "tiling": {"pad": 1},
        "marker": {"colors": [MODULES[place % len(MODULES)] for place, _ in enumerate(order)]},
        "pathbar": {"visible": True},
    }
    return {"data": [trace], "layout": {"margin": {"l": 0, "r": 0, "t": 24, "b": 0}}}


def memory_tree(sheet: Sheet) -> Figure | None:
    """Memory at the peak by module."""
    if not sheet.modules:
        return None
    return tree_figure(sheet.modules, lambda each: float(each.memory_bytes), bytes_text)


def time_tree(sheet: Sheet) -> Figure | None:
    """Seconds of a step by module; None if they were not measured."""
    if not any(each.seconds for each in sheet.modules):
        return None
    return tree_figure(sheet.modules, lambda each: each.seconds, seconds_text)


def flops_tree(sheet: Sheet) -> Figure | None:
    """FLOPs of a step by module, for a step without measured seconds."""
    if not sheet.modules or any(each.seconds for each in sheet.modules):
        return None
    return tree_figure(sheet.modules, lambda each: each.flops, flops_text)


def operator_figure(sheet: Sheet, most: int = 12) -> Figure | None:
    """The operators that take the most time."""
    if not sheet.operators:
        return None
    shown = dict(list(sheet.operators.items())[:most])
    rest = sum(sheet.operators.values()) - sum(shown.values())
    if rest > 0:
        shown[f"{len(sheet.operators) - len(shown)} more"] = rest
    names = [name.removeprefix("aten::") for name in shown]
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": [as_text(_short(name)) for name in names][::-1],
        "x": list(shown.values())[::-1],
        "text": [seconds_text(amount) for amount in shown.values()][::-1],
        "customdata": [as_text(name) for name in names][::-1],
        "hovertemplate": "%{customdata}<br>%{text}<extra></extra>",
        "marker": {"color": COLOURS[0]},
        "textposition": "auto",
    }
    axes = {"xaxis": {"title": {"text": "seconds of a step"}}, "yaxis": {"automargin": True, "type": "category"}}
    return {"data": [bar], "layout": axes | {"showlegend": False}}


def _short(name: str) -> str:
    """Cuts the middle out of a long name, because the ends tell operators apart."""
    return name if len(name) <= 36 else f"{name[:16]}…{name[-18:]}"


def roofline_figure(sheet: Sheet) -> Figure | None:
    """Modules by FLOPs per byte, under the two ceilings. Repeated blocks are one point."""
    groups: dict[str, list[ModuleShare]] = {}
    for share in sheet.modules:
        if share.flops and share.moved_bytes and share.seconds:
            groups.setdefault(repeated_as_one(share.module), []).append(share)
    if not groups or sheet.ceiling is None:
        return None
    points = {name: tuple(sum(getattr(each, of) for each in found) for of in ("flops", "moved_bytes", "seconds"))
              for name, found in groups.items()}  # fmt: skip
    longest = max(seconds for _, _, seconds in points.values())
    ridge = sheet.ceiling.flops_per_second / sheet.ceiling.bytes_per_second
    intensities = [flops / moved for flops, moved, _ in points.values()]
    low, high = min(*intensities, ridge) / 3, max(*intensities, ridge) * 3
    spots = {
        name: (math.log(flops / moved / low) / math.log(high / low), math.log10(flops / seconds), seconds)
        for name, (flops, moved, seconds) in points.items()
    }
    labelled = labels_apart(spots)
    roof = {
        "type": "scatter",
        "mode": "lines",
        "name": "ceiling",
        "x": [low, ridge, high],
        "y": [low * sheet.ceiling.bytes_per_second, sheet.ceiling.flops_per_second, sheet.ceiling.flops_per_second],
        "line": {"color": "#888888", "dash": "dash"},
        "hoverinfo": "skip",
    }
    modules = {
        "type": "scatter",
        "mode": "markers+text",
        "name": "modules",
        "x": intensities,
        "y": [flops / seconds for flops, _, seconds in points.values()],
        "text": [as_text(name) if name in labelled else "" for name in points],
        "customdata": [
            f"{as_text(name)}<br>{flops_text(flops)}, {bytes_text(moved)} moved, {seconds_text(seconds)}"
            for name, (flops, moved, seconds) in points.items()
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "textposition": [labelled.get(name, "bottom center") for name in points],
        "marker": {
            "size": [8 + 22 * (seconds / longest) ** 0.5 for _, _, seconds in points.values()],
            "color": [COLOURS[0] if each >= ridge else COLOURS[1] for each in intensities],
            "opacity": 0.8,
        },
    }
    axes = {
        "xaxis": {"type": "log", "dtick": 1, "title": {"text": "FLOP per byte moved"}},
        "yaxis": {"type": "log", "dtick": 1, "exponentformat": "SI", "title": {"text": "FLOP/s"}},
        "showlegend": False,
    }
    return {"data": [roof, modules], "layout": axes}


LAYER_FIGURES: dict[str, Callable[[Layer], float | None]] = {
    "gradient norm by layer": lambda layer: layer.gradient_norm,
    "update over weight by layer": lambda layer: layer.update_ratio,
    "deviation of activations by layer": lambda layer: layer.deviation,
    "share of zeros by layer": lambda layer: layer.zeros,
    "share of saturated activations by layer": lambda layer: layer.saturated,
}
"""The figures of layers over the steps, by title."""
_NAMES = 20
"""How many layers are named beside a figure. The others are named where the mouse points."""


def layer_figures(sheet: Sheet) -> dict[str, Figure]:
    """For each figure of the layers a map: steps to the right, layers from the first down."""
    drawn = {title: _layer_figure(sheet.layers, value, title) for title, value in LAYER_FIGURES.items()}
    return {title: figure for title, figure in drawn.items() if figure is not None}


def _layer_figure(rows: Sequence[LayersRow], value: Callable[[Layer], float | None], title: str) -> Figure | None:
    """None if no layer has this figure, or all shares are 0. Amounts are coloured by their logarithm."""
    is_share = title.startswith("share")
    found = {name: [value(row.layers[name]) if name in row.layers else None for row in rows] for name in _names(rows)}
    found = {name: values for name, values in found.items() if any(each is not None for each in values)}
    colours = [[_colour(each, is_share=is_share) for each in values] for values in found.values()]
    heights = [each for line in colours for each in line if each is not None]
    if not heights or (is_share and not any(heights)):
        return None
    texts = [
        [f"{as_text(name)}<br>{'none' if each is None else f'{each:.4g}'}" for each in values]
        for name, values in found.items()
    ]
    bar: dict[str, Any] = {"thickness": 12, "outlinewidth": 0}
    ends = {"zmin": 0, "zmax": 1} if is_share else {}
    if is_share:
        bar |= {"tickformat": ".0%"}
    else:
        bar |= _powers_of_ten(min(heights), max(heights))
    drawn = {
        "type": "heatmap",
        "x": [str(row.step) for row in rows],
        "y": list(range(len(found))),
        "z": colours,
        "text": texts,
        "hovertemplate": "step %{x}<br>%{text}<extra></extra>",
        "colorscale": "Viridis",
        "colorbar": bar,
        **ends,
    }
    every = -(-len(found) // _NAMES)  # a deep model has more layers than names fit beside the figure
    ticks = list(range(0, len(found), every))
    names = list(found)
    axes = {
        "xaxis": {"type": "category", "nticks": 8, "title": {"text": "step"}},
        "yaxis": {
            "autorange": "reversed",
            "tickvals": ticks,
            "ticktext": [as_text(_tail(names[at])) for at in ticks],
            "showgrid": False,
        },
    }
    return {"data": [drawn], "layout": axes}


def _names(rows: Sequence[LayersRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.layers))


def _colour(number: float | None, *, is_share: bool) -> float | None:
    """The height of a number on the colour scale. None, which is not drawn, for zero and for what is not finite."""
    if number is None or not math.isfinite(number):
        return None
    return number if is_share else math.log10(number) if number > 0 else None


def _powers_of_ten(low: float, high: float) -> dict[str, Any]:
    """Ticks of a logarithmic scale. Within one power of ten, its two ends."""
    ticks: list[float] = [float(each) for each in range(math.ceil(low), math.floor(high) + 1)]
    if len(ticks) < 2:
        ticks = [low, high] if high > low else [low]
    step = -(-len(ticks) // 6)
    return {"tickvals": ticks[::step], "ticktext": [f"{10**each:.2g}" for each in ticks[::step]]}


def _tail(name: str) -> str:
    """The end of a long name: the beginning is the same for most layers."""
    return (name or "(model)") if len(name) <= 22 else f"…{name[-21:]}"


def _byte_ticks(highest: float) -> dict[str, Any]:
    """Ticks at round numbers, in the largest unit that fits the highest value."""
    unit = 1
    while unit * 1024 <= highest:
        unit *= 1024
    step = next(
        each * unit for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if highest / unit / each <= 6
    )
    ticks = [number * step for number in range(int(highest / step) + 2)]
    return {
        "tickvals": ticks,
        "ticktext": [bytes_text(tick).replace(".00 ", " ") for tick in ticks],
        "title": {"text": ""},
    }


_OF_A_SHEET: dict[str, Callable[[Sheet], Figure | None]] = {
    "memory over one step": timeline_figure,
    "memory by module": memory_tree,
    "time by module": time_tree,
    "time by operator": operator_figure,
    "roofline": roofline_figure,
}


def titled_figures(report: Report) -> dict[str, Figure]:
    """The curves of all runs, then the figures of one step for each run."""
    found = dict(curve_figures(report.sheets))
    for sheet in report.sheets:
        of = f" of {sheet.name}" if len(report.sheets) > 1 else ""
        made = {title + of: make(sheet) for title, make in _OF_A_SHEET.items()}
        found |= {title: figure for title, figure in made.items() if figure is not None}
        found |= {title + of: figure for title, figure in layer_figures(sheet).items()}
    return found
