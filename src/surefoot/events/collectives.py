"""Finds the process group of a collective."""

from __future__ import annotations

from typing import Any

import torch


def group_of(operands: Any) -> str:
    """The name of the group of a collective: a dimension of the mesh, or `all`. Empty if no operand is a group."""
    for operand in reversed(operands):
        group = None
        if isinstance(operand, str):  # the last operand of a functional collective
            group = torch.distributed.distributed_c10d._resolve_process_group(operand)  # type: ignore[arg-type]
        elif isinstance(operand, torch.ScriptObject) and _kind(operand) == "ProcessGroup":
            group = torch.distributed.ProcessGroup.unbox(operand)
        if group is not None:
            return "all" if group.group_desc == "default_pg" else group.group_desc.removeprefix("mesh_")
    return ""


def _kind(operand: torch.ScriptObject) -> str:
    return operand._type().name()  # type: ignore[attr-defined]
