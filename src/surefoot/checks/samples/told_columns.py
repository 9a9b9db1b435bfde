"""Finds columns of the inputs that hold the target itself, or its class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from surefoot.checks.engine.scene import own
from surefoot.checks.facts.samples import ToldBy
from surefoot.torch_inside.modes import aside
from surefoot.world.device import wide

_MOST_ROWS, _MOST_COLUMNS, _MOST_TARGETS = 1024, 2048, 64
_FEWEST_ROWS, _FEWEST_VALUES = 48, 12
_MOST_CLASSES = 64
_FEW = 0.25
"""If more of the targets than this are among the inputs, copying is the task, or the next step of each step."""
_SURE = 0.9995
"""A correlation beyond what real measurements of something else reach."""


@dataclass
class _Table:
    """Inputs and targets of one line, row by row."""

    shape: tuple[int, ...]
    inputs: list[torch.Tensor] = field(default_factory=list)
    targets: list[torch.Tensor] = field(default_factory=list)
    rows: int = 0


class ToldColumns:
    """Collects the first rows of each line's inputs and targets."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}

    def see(self, where: str, entered: list[torch.Tensor], target: torch.Tensor) -> None:
        """Adds a batch. Inputs are one tensor of numbers with at most three dimensions: a table or windows."""
        floats = [each for each in entered if each.is_floating_point() and each.dim() in (2, 3)]
        if len(floats) != 1 or target.dim() > 3 or target.dtype == torch.bool:
            return
        inputs, shape = floats[0], tuple(floats[0].shape[1:])
        wide = inputs[0].numel() > _MOST_COLUMNS or target[0].numel() > _MOST_TARGETS
        table = self._tables.setdefault(where, _Table(shape))
        if wide or target[0].numel() >= inputs[0].numel() or table.shape != shape or table.rows >= _MOST_ROWS:
            return
        with aside():
            table.inputs.append(own(inputs).flatten(1).cpu())
            table.targets.append(own(target).reshape(len(target), -1).cpu())
            table.rows += len(target)

    def told(self) -> Iterator[ToldBy]:
        """The lines whose target is a column of the inputs."""
        with aside():
            for where, table in self._tables.items():
                widths = {each.shape[1] for each in table.targets}
                if table.rows < _FEWEST_ROWS or len(widths) != 1:
                    continue
                inputs, targets = wide(torch.cat(table.inputs)), torch.cat(table.targets)
                rows = torch.cat([inputs, wide(targets)], 1).unique(dim=0)
                if len(rows) >= _FEWEST_ROWS and bool(rows.isfinite().all()):
                    given, wanted = rows[:, : inputs.shape[1]], rows[:, inputs.shape[1] :]
                    yield from _told(where, table.shape, given, wanted, classes=not targets.is_floating_point())


def _told(
    where: str, shape: tuple[int, ...], given: torch.Tensor, wanted: torch.Tensor, *, classes: bool
) -> Iterator[ToldBy]:
    exact = [(place, column) for place in range(wanted.shape[1]) if (column := _equal(given, wanted[:, place])) >= 0]
    if exact and (wanted.shape[1] == 1 or len(exact) <= _FEW * wanted.shape[1]):
        yield ToldBy(where, _place(exact[0][1], shape), "equals", len(given))
    elif wanted.shape[1] == 1 and len(shape) == 1 and given.shape[1] >= 3:
        target = wanted[:, 0]
        column = _one_to_one(given, target) if classes or len(target.unique()) == 2 else _correlated(given, target)
        if column >= 0:
            yield ToldBy(where, _place(column, shape), "tells", len(given))


def _equal(given: torch.Tensor, target: torch.Tensor) -> int:
    """The column that equals a target of many values, or -1."""
    if len(target.unique()) < _FEWEST_VALUES:
        return -1
    alike = (given == target[:, None]).all(0).nonzero()
    return int(alike[0]) if len(alike) else -1


def _one_to_one(given: torch.Tensor, target: torch.Tensor) -> int:
    """The only column that has one value for each class, and another one for each, or -1."""
    classes = target.unique()
    if not 2 <= len(classes) <= _MOST_CLASSES or min(int((target == each).sum()) for each in classes) < 4:
        return -1
    means = torch.stack([given[target == each][0] for each in classes])
    same = torch.stack([(given[target == each] == mean).all(0) for each, mean in zip(classes, means, strict=True)])
    distinct = torch.tensor([len(column.unique()) == len(classes) for column in means.t()])
    found = (same.all(0) & distinct).nonzero()
    return int(found[0]) if len(found) == 1 else -1


def _correlated(given: torch.Tensor, target: torch.Tensor) -> int:
    """The only column that is nearly a multiple of the target, plus a number, or -1."""
    centred, wanted = given - given.mean(0), target - target.mean()
    sizes = centred.norm(dim=0) * wanted.norm()
    shares = (centred * wanted[:, None]).sum(0).abs() / sizes.clamp(min=1e-12)
    found = ((shares > _SURE) & (sizes > 1e-9)).nonzero()
    return int(found[0]) if len(found) == 1 else -1


def _place(column: int, shape: tuple[int, ...]) -> str:
    """A column in words: that of a table, or a step of a window."""
    if len(shape) == 1:
        return f"input {column} of {shape[0]}"
    step, feature = divmod(column, shape[1])
    last = "the last step" if step == shape[0] - 1 else f"step {step}"
    return f"{last} of each window" + (f", feature {feature}" if shape[1] > 1 else "")
