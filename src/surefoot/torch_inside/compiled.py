"""Compiled: packages of AOTInductor, and how many graphs torch.compile has made."""

from __future__ import annotations

import sys
from typing import Any


def compile_package(program: Any, path: str) -> None:
    """Compiles an exported program to a package of machine code."""
    from torch._inductor import aoti_compile_and_package

    aoti_compile_and_package(program, package_path=path)


def load_package(path: str) -> Any:
    """Loads a package as a function."""
    from torch._inductor import aoti_load_package

    return aoti_load_package(path)


def graphs_compiled() -> int:
    """How many graphs torch.compile has made in this process so far."""
    dynamo = sys.modules.get("torch._dynamo")
    return 0 if dynamo is None else int(dynamo.utils.counters["stats"]["unique_graphs"])


ALONE = """
import sys, torch
args, kwargs = torch.load(sys.argv[2], weights_only=True)
made = torch._inductor.aoti_load_package(sys.argv[1])(*args, **kwargs)
found = [each for each in torch.utils._pytree.tree_leaves(made) if isinstance(each, torch.Tensor)]
assert "surefoot" not in sys.modules
torch.save(found, sys.argv[3])
"""
"""Runs a package in a process that has torch alone: PACKAGE, the file of the call, the file for the results."""
