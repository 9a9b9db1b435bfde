"""A plan for serving as text."""

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.serving import Served, Serving
from surefoot.reports.parts import table_of, title
from surefoot.units import bytes_text, counted


def serving_text(serving: Serving) -> RenderableType:
    """Bytes by number format, whether they fit, and how fast it can be."""
    table = table_of("format", "weights", "keys and values", "total", "fits", "tokens/s, at most")
    for row in serving.rows:
        table.add_row(
            row.format,
            bytes_text(row.weights_bytes),
            bytes_text(row.cache_bytes),
            bytes_text(row.total_bytes),
            {True: "yes", False: "no", None: "-"}[row.fits],
            _rate(row),
        )
    return Group(
        title(serving.recipe, serving.knobs, serving.about), Text(_about(serving)), table, Text(_bound(serving))
    )


def _about(serving: Serving) -> str:
    texts = counted(serving.batch, "text")
    return f"{serving.parameters:,} parameters; {texts} of {serving.context:,} tokens; figures for each device"


def _bound(serving: Serving) -> str:
    if not serving.bandwidth:
        return "name a device with --on to see whether it fits, and how fast it can be"
    by = f"{serving.bandwidth / 1e9:,.0f} GB/s of {serving.devices} x {serving.device}"
    return (
        f"tokens/s of all texts, when the context is full: each step reads weights, keys and values once, at {by}; "
        "compute, links between devices and activations are not counted"
    )


def _rate(row: Served) -> str:
    return "-" if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}"
