"""Finds the process group of a collective."""

from __future__ import annotations

from typing import Any

from surefoot.torch_inside.collectives import group_of as group_in


def group_of(operands: Any) -> str:
    """The name of the group of a collective: a dimension of the mesh, or `all`. Empty if no operand is a group."""
    for operand in reversed(operands):
        group = group_in(operand)
        if group is not None:
            return "all" if group.group_desc == "default_pg" else group.group_desc.removeprefix("mesh_")
    return ""
