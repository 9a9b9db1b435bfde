"""Operators: those of torch whose names are private, and the schemas of all. Not every torch has every operator."""

from __future__ import annotations

from typing import Any

import torch


class Absent:
    """Stands for an operator that this torch does not have: equal to no operator that is called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, overload: str) -> Absent:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return Absent(f"{self.name}.{overload}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch {torch.__version__} has no operator {self.name}")

    def __repr__(self) -> str:
        return f"<no {self.name} in torch {torch.__version__}>"


def private(name: str) -> Any:
    """`private("_softmax")` is `torch.ops.aten._softmax`; an `Absent` where this torch has no such operator."""
    try:
        return getattr(torch.ops.aten, name)
    except AttributeError:
        return Absent(f"aten.{name}")


def schema_of(func: Any) -> Any:
    """The schema of an operator: its arguments, which of them it writes to, and its results."""
    return func._schema


def waits(func: Any) -> bool:
    """Is it the operator that waits for a functional collective?"""
    return func is torch.ops._c10d_functional.wait_tensor.default
