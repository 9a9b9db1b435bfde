"""The commands `surefoot hardware list | show | napkin | measure`: the devices that you can plan for."""

from __future__ import annotations

from typing import Annotated

import typer

from surefoot.cli.commands import Commands
from surefoot.cli.shared import JsonOption, devices, within
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Shows peaks, memory, links and prices of devices, each with its source, and measures this machine.",
    rich_markup_mode="markdown",
)

_MORE = within(0, above=True)


@app.command(name="list")
def list_devices(json: JsonOption = False) -> None:
    """Lists all devices that have a datasheet."""
    from surefoot.hardware import datasheet, known_devices
    from surefoot.reports.hardware import devices_text

    sheets = [datasheet(name) for name in known_devices()]
    _print(to_json(sheets) if json else devices_text(sheets), json=json)


@app.command()
def show(
    device: Annotated[
        str,
        typer.Argument(
            metavar="DEVICE", callback=devices, help="a device such as h100-sxm, or 'here' for this machine"
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Shows all numbers of one device, their sources, and where the sources differ."""
    from surefoot.hardware import datasheet
    from surefoot.hardware.here import HERE, here
    from surefoot.reports.hardware import device_text

    sheet = here() if device == HERE else datasheet(device)
    _print(to_json(sheet) if json else device_text(sheet), json=json)


@app.command()
def napkin(
    on: Annotated[str, typer.Argument(metavar="CLUSTER", callback=devices, help="devices, such as 1024xh100-sxm")],
    parameters: Annotated[
        float | None, typer.Option(callback=_MORE, help="parameters of the model, such as 70e9")
    ] = None,
    tokens: Annotated[float | None, typer.Option(callback=_MORE, help="tokens to train on, such as 15e12")] = None,
    days: Annotated[float | None, typer.Option(callback=_MORE, help="days that you have the cluster")] = None,
    step_seconds: Annotated[
        float | None, typer.Option(callback=_MORE, help="seconds of a step on one device, without communication")
    ] = None,
    mfu: Annotated[
        float, typer.Option(callback=within(0, 1, above=True), help="expected share of the peak FLOP/s")
    ] = 0.5,
    price: Annotated[
        float | None, typer.Option(callback=within(0), help="dollars per device-hour; default: the median list price")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Estimates days (by 6ND), the largest model and one all-reduce, before you have a recipe.

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
    """Measures this machine, and saves the result as the datasheet named "here".

    It measures matrix products by number format, memory bandwidth, the overhead of an operator, and an all-reduce
    between two processes. This takes about half a minute; run nothing else meanwhile.
    """
    from surefoot.hardware.here import keep_here
    from surefoot.planning.timing.measure import measure_here
    from surefoot.reports.hardware import device_text

    sheet = measure_here()
    path = keep_here(sheet)
    _print(to_json(sheet) if json else device_text(sheet), json=json)
    if not json:
        _print(f"saved as {path}", json=False)


def _print(text: object, *, json: bool) -> None:
    if json:
        print(text)
    else:
        PlainConsole().print(text)
