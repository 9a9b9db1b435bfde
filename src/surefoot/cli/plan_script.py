"""The part of `surefoot plan` for scripts: what counts as one, and which options go with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from surefoot.cli.shared import show
from surefoot.recipe.kind import kind_of

if TYPE_CHECKING:
    from surefoot.records.plan import Plan

LAUNCHERS = ("torchrun", "accelerate", "python", "python3", "-m")


def starts_a_script(target: str) -> bool:
    """Does a word start a script: the script itself, a launcher, or a command that a package has installed?"""
    if kind_of(target) == "script" or os.path.basename(target) in LAUNCHERS:
        return True
    return kind_of(target) == "neither" and _is_command(target)


def _is_command(name: str) -> bool:
    from importlib.metadata import entry_points

    return bool(entry_points(group="console_scripts", name=name))


def refuse_for_script(given: Mapping[str, Any]) -> None:
    """Raises if an option was given that plans only recipes."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(f"{name} plans a recipe; a script takes --try and --largest-argument")


def planned_script(
    command: Sequence[str],
    on: str | None,
    tries: Sequence[str],
    largest: str | None,
    steps: int | None,
    epochs: float | None,
    *,
    json: bool,
) -> Plan | None:
    """The plan of a script; None if several were compared, and shown."""
    from surefoot.planning.scripts.plan_script import largest_argument, plan_script, try_arguments

    if tries and largest is not None:
        raise typer.BadParameter("--try compares and --largest-argument searches: use only one of them")
    if not tries and largest is None:
        return plan_script(command, on=on or "cpu", steps=steps, epochs=epochs)
    if on is None:
        raise typer.BadParameter("name the GPU to compare on: --on h100-sxm")
    from surefoot.reports.tries import tries_text

    found = try_arguments(command, tries, on=on) if tries else largest_argument(command, str(largest), on=on)
    show(found, tries_text, json=json)
    return None
