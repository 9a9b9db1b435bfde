"""The command `surefoot doctor`: what is installed, what this machine can do, and whether surefoot works on it."""

from __future__ import annotations

import typer

from surefoot.cli.shared import JsonOption, show


def doctor(json: JsonOption = False) -> None:
    """Reports versions, devices, optional extras and disk space, and runs a self-test of a few seconds.

    Exits with 1 if the self-test fails, and says what to do. Include `surefoot doctor --json` in a bug report.
    """
    from surefoot.cli.checkup import checkup
    from surefoot.reports.doctor import checkup_text

    found = checkup()
    show(found, checkup_text, json=json)
    raise typer.Exit(0 if found.is_well else 1)
