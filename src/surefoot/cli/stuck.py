"""The command `surefoot stuck`: where the processes of a training stand that does not go on."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from surefoot.cli.shared import JsonOption, show, within


def stuck(
    target: Annotated[str, typer.Argument(metavar="PID|RUN", help="a process, or the directory of a run in use")],
    seconds: Annotated[
        float, typer.Option("--seconds", help="the time between two looks", callback=within(0.1, 600))
    ] = 3.0,
    stacks: Annotated[bool, typer.Option("--stacks", help="print the whole stack of every process")] = False,
    json: JsonOption = False,
) -> None:
    """Says why a training does not go on: which rank, which collective, which line, which loader worker, which lock.

    Name the process of a script, or that of torchrun for all of its ranks. It is looked at from outside and goes on.
    Exits with 1 if it is stuck.

    Examples:

    `surefoot stuck 4711`

    `surefoot stuck runs/gpt-3 --stacks`
    """
    from surefoot.debug.hangs.stuck import stuck as look
    from surefoot.reports.stuck import stuck_text

    found = look(target, seconds=seconds)
    show(found, partial(stuck_text, stacks=stacks), json=json)
    if found.stuck:
        raise typer.Exit(1)
