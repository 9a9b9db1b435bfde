"""A group of commands, whose help names a type only after options that take a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperGroup


class Commands(TyperGroup):
    """Recent versions of typer (0.29, for example) show `<bool>` after every flag, although a flag takes no value."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_types(command.get_params(ctx))
        return command


def _without_types(options: Iterable[Any]) -> list[Any]:
    found = list(options)
    for each in found:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return found
