"""Datasheets as text for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.hardware import Datasheet
from surefoot.records.napkin import Napkin
from surefoot.reports.parts import table_of
from surefoot.units import bytes_text, flops_text, money_text, seconds_text, short_count


def devices_text(sheets: Sequence[Datasheet]) -> RenderableType:
    """One line for each device; a dash if no source states a number or sources differ."""
    table = table_of("device", "bf16 dense", "reached", "fp32", "memory", "bandwidth", "link", "watts", "$/h")
    table.columns[0].no_wrap = True
    for sheet in sheets:
        reached = (sheet.reached_flops or {}).get("bf16", 0)
        table.add_row(
            sheet.name,
            _rate(sheet.dense_flops.get("bf16", 0)),
            _rate(reached),
            _rate(sheet.dense_flops.get("fp32", 0)),
            f"{sheet.memory_bytes / 1e9:.0f} GB" if sheet.memory_bytes else "-",
            _bandwidth(sheet.memory_bandwidth),
            _bandwidth(sheet.link_bandwidth),
            f"{sheet.watts:.0f}" if sheet.watts else "-",
            f"{sheet.dollars_per_hour:.2f}" if sheet.prices else "-",
        )
    return Group(table, Text("TFLOP/s without sparsity; GB/s; link one way; $/h is the median of dated list prices"))


def device_text(sheet: Datasheet) -> RenderableType:
    """All numbers of a device, and their sources."""
    table = table_of("number", "value")
    for name, peak in sheet.dense_flops.items():
        table.add_row(f"{name}, dense peak", f"{peak / 1e12:,.1f} TFLOP/s")
    for name, reached in (sheet.reached_flops or {}).items():
        share = f" ({reached / sheet.dense_flops[name]:.0%} of the peak)" if name in sheet.dense_flops else ""
        table.add_row(f"{name}, reached by large products", f"{_reached(reached)}{share}")
    table.add_row("memory, as labelled", f"{sheet.memory_bytes / 1e9:.0f} GB" if sheet.memory_bytes else "unknown")
    table.add_row("memory, as CUDA reports it", bytes_text(sheet.usable_bytes) if sheet.usable_bytes else "unknown")
    table.add_row("memory bandwidth", _speed(sheet.memory_bandwidth))
    table.add_row(f"link {sheet.link}".rstrip(), _speed(sheet.link_bandwidth, " one way"))
    table.add_row("bus to the host", _speed(sheet.host_bandwidth, " one way"))
    table.add_row("power", f"{sheet.watts:.0f} W" if sheet.watts else "unknown")
    if sheet.kernel_seconds:
        table.add_row("overhead of an operator", f"{sheet.kernel_seconds * 1e6:.1f} us")
    for phase, seconds in (sheet.call_seconds or {}).items():
        table.add_row(f"overhead of a call in {phase}", f"{seconds * 1e6:+.1f} us")
    for price in sheet.prices:
        table.add_row(f"price, {price.provider}", f"{price.dollars_per_hour:.2f} dollars/h {price.date}".rstrip())
    return Group(
        Text(sheet.name, style="bold"),
        table,
        *(Text(f"note: {note}", style="yellow") for note in sheet.notes),
        *(Text(f"source: {source}", style="dim") for source in sheet.sources),
    )


def napkin_text(napkin: Napkin) -> RenderableType:
    """Each sum with the numbers it is made of."""
    peak, held = f"{napkin.peak_flops / 1e12:,.0f} TFLOP/s", short_count(napkin.held_parameters)
    lines = [f"{napkin.devices} hold the states of {held} parameters: 16 bytes each in float32 with AdamW"]
    if napkin.training_flops is not None:
        lines.append(
            f"6 x {short_count(napkin.parameters or 0)} parameters x {short_count(napkin.tokens or 0)} tokens = "
            f"{napkin.training_flops:.3g} FLOPs"
        )
    if napkin.seconds is not None:
        dollars = "" if napkin.dollars is None else f", {money_text(napkin.dollars)}"
        lines.append(f"at {napkin.mfu:.0%} of {peak} each: {seconds_text(napkin.seconds)}{dollars}")
    if napkin.flops_in_days is not None:
        lines.append(
            f"{napkin.days:g} days at {napkin.mfu:.0%} of {peak} each: {napkin.flops_in_days:.3g} FLOPs; "
            f"at the full peak {napkin.peak_flops_in_days:.3g}"
        )
    if napkin.gradient_bytes is not None:
        lines.append(
            f"gradients in float32: {napkin.gradient_bytes / 1e9:.3g} GB; a ring all-reduce over "
            f"{_bandwidth(napkin.link_bandwidth or 0)} GB/s one way: {seconds_text(napkin.all_reduce_seconds or 0)}"
        )
    if napkin.speedup is not None:
        lines.append(f"{napkin.speedup:.2f} times as fast as one device, if no communication overlaps with computation")
    return Group(*map(Text, lines))


def _rate(flops: float) -> str:
    return f"{flops / 1e12:,.1f}" if flops else "-"


def _speed(amount: float, way: str = "") -> str:
    return f"{_bandwidth(amount)} GB/s{way}" if amount else "unknown"


def _bandwidth(amount: float) -> str:
    return "-" if not amount else f"{amount / 1e9:,.0f}" if amount >= 1e10 else f"{amount / 1e9:.2g}"


def _reached(flops: float) -> str:
    """Of a GPU in TFLOP/s; a CPU may reach much less."""
    return f"{flops / 1e12:,.2f} TFLOP/s" if flops >= 1e12 else f"{flops_text(flops)}/s"
