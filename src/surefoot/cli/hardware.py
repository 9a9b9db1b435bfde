"""surefoot hardware list | show | napkin | measure: the devices that plans are made for."""

from __future__ import annotations

from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, within
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole

app = typer.Typer(
    no_args_is_help=True,
    help="Devices as data: peaks, memory, links, prices, each with its source; and this machine, measured.",
    rich_markup_mode="markdown",
)

_MORE = within(0, above=True)


@app.command(name="list")
def list_devices(json: JsonOption = False) -> None:
    """All devices that have a datasheet."""
    from surefoot.hardware import datasheet, known_devices
    from surefoot.reports.hardware import devices_text

    sheets = [datasheet(name) for name in known_devices()]
    _print(to_json(sheets) if json else devices_text(sheets), json=json)


@app.command()
def show(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="such as h100-sxm; `here` is this machine")],
    json: JsonOption = False,
) -> None:
    """Everything known of one device: every number, its sources, and where they differ."""
    from surefoot.hardware import datasheet
    from surefoot.hardware.here import HERE, here
    from surefoot.reports.hardware import device_text

    sheet = here() if device == HERE else datasheet(device)
    _print(to_json(sheet) if json else device_text(sheet), json=json)


@app.command()
def napkin(
    on: Annotated[str, typer.Argument(metavar="CLUSTER", help="such as 1024xh100-sxm")],
    parameters: Annotated[float | None, typer.Option(callback=_MORE, help="of the model, such as 70e9")] = None,
    tokens: Annotated[float | None, typer.Option(callback=_MORE, help="to train on, such as 15e12")] = None,
    days: Annotated[float | None, typer.Option(callback=_MORE, help="how long the cluster is there")] = None,
    step_seconds: Annotated[
        float | None, typer.Option(callback=_MORE, help="of one step on one device, before it is shared")
    ] = None,
    mfu: Annotated[
        float, typer.Option(callback=within(0, 1, above=True), help="the share of the peak that is expected")
    ] = 0.5,
    price: Annotated[
        float | None, typer.Option(callback=within(0), help="dollars per device-hour; default: the median list price")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Sums that fit on a napkin, before there is a recipe: days by 6ND, the largest model, one all-reduce.

    Example: `surefoot hardware napkin 1024xh100-sxm --parameters 70e9 --tokens 15e12`
    """
    from surefoot.costs.napkin import napkin as sums
    from surefoot.hardware import cluster
    from surefoot.reports.hardware import napkin_text

    machines = cluster(on, dollars_per_hour=price)
    found = sums(machines, mfu=mfu, parameters=parameters, tokens=tokens, days=days, step_seconds=step_seconds)
    _print(to_json(found) if json else napkin_text(found), json=json)


@app.command()
def measure(json: JsonOption = False) -> None:
    """Measures this machine, and keeps the result as the datasheet `here`.

    Matrix products by number format, memory bandwidth, what an operator costs beside its work, and an all-reduce
    between two processes. Takes about half a minute; let the machine do nothing else meanwhile.
    """
    from surefoot.hardware.here import keep_here
    from surefoot.reports.hardware import device_text
    from surefoot.timing.measure import measure_here

    sheet = measure_here()
    path = keep_here(sheet)
    _print(to_json(sheet) if json else device_text(sheet), json=json)
    if not json:
        _print(f"kept as {path}", json=False)


def _print(text: object, *, json: bool) -> None:
    if json:
        print(text)
    else:
        PlainConsole().print(text)
