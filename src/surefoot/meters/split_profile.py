"""Split profile: statistics of each column in each part of the data, and a linear model fitted on each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from surefoot.records.splits import BOTH, TARGET, TRAINING, VALIDATION, Column, LinearFit, Rows, SplitProfile

_MOST_LABELS = 12
_MOST_CLASSES = 64
_MOST_VALUES = 1 << 20
_FEATURES = 256
_FEWEST_ROWS = 32
_TOKENS = 16
"""Whole numbers up to at least this many, several in a row, are words: they are counted, not measured."""
_DECAY = 1e-2


@dataclass
class Part:
    """The kept rows of one part: by column, a matrix with one row for each sample."""

    name: str
    seen: int
    size: int
    keys: Mapping[int, int]
    columns: dict[str, torch.Tensor]


def profile_of(parts: Sequence[Part]) -> SplitProfile:
    """The profile of both parts, or of the one that there is."""
    parts = sorted(parts, key=lambda each: each.name)
    names = dict.fromkeys(name for part in parts for name in part.columns)
    columns: list[Column] = []
    for name in sorted(names, key=lambda name: name == TARGET):
        held = {part.name: part.columns[name] for part in parts if name in part.columns}
        if len({each.shape[1] for each in held.values()}) == 1 and len(held) > 1:
            held[BOTH] = torch.cat(list(held.values()))
        columns += [_column(name, part, values) for part, values in held.items()]
    by_name = {each.name: each for each in parts}
    ours, theirs = (by_name[part].keys if part in by_name else {} for part in (TRAINING, VALIDATION))
    shared = [key for key in theirs if key in ours]
    score, guess, fits = _fits(by_name)
    return SplitProfile(
        rows=tuple(Rows(each.name, each.seen, len(each.keys), each.size) for each in parts),
        columns=tuple(columns),
        shared=len(shared),
        shared_with_other_target=sum(ours[key] != theirs[key] for key in shared if ours[key] and theirs[key]),
        fits=fits,
        score=score,
        guess=guess,
    )


def _column(name: str, part: str, values: torch.Tensor) -> Column:
    flat = values.reshape(-1)
    flat = flat[:: -(-flat.numel() // _MOST_VALUES)].double()
    flat = flat[flat.isfinite()]
    if not flat.numel():
        none = float("nan")
        return Column(name, part, values.numel(), none, none, none, none, usual=none, usual_share=0.0)
    kinds, counts = flat.unique(return_counts=True)
    usual = int(counts.argmax())
    whole = bool((kinds == kinds.round()).all())
    few = name == TARGET and whole and len(kinds) <= _MOST_LABELS
    shares = (counts / flat.numel()).tolist()
    return Column(
        name=name,
        part=part,
        values=values.numel(),
        mean=float(flat.mean()),
        deviation=float(flat.std(correction=0)),
        lowest=float(kinds[0]),
        highest=float(kinds[-1]),
        usual=float(kinds[usual]),
        usual_share=shares[usual],
        whole=whole,
        labels={f"{kind:.0f}": share for kind, share in zip(kinds.tolist(), shares, strict=True)} if few else {},
    )


def _fits(parts: Mapping[str, Part]) -> tuple[str, float, tuple[LinearFit, ...]]:
    """What the scores are, the score of always answering the same, and a linear model of each part."""
    some = [parts[name] for name in (TRAINING, VALIDATION) if name in parts and TARGET in parts[name].columns]
    if len(some) < 2 or min(len(each.columns[TARGET]) for each in some) < _FEWEST_ROWS:
        return "", 0.0, ()
    inputs = [name for name in some[0].columns if name != TARGET and name in some[1].columns]
    shapes = [[each.columns[name].shape[1] for name in (*inputs, TARGET)] for each in some]
    if not inputs or shapes[0] != shapes[1] or any(len(_features(each, inputs)) < _FEWEST_ROWS for each in some):
        return "", 0.0, ()
    xs = [_features(each, inputs) for each in some]
    both = torch.cat(xs)
    middle, spread = both.mean(0), both.std(0).clamp_min(1e-9)
    xs = [torch.nn.functional.pad((x - middle) / spread, (0, 1), value=1.0).nan_to_num() for x in xs]
    targets = [each.columns[TARGET].double()[: len(x)] for each, x in zip(some, xs, strict=True)]
    classes = torch.cat(targets).unique()
    labelled = targets[0].shape[1] == 1 and len(classes) <= _MOST_CLASSES and bool((classes == classes.round()).all())
    ys = [(each == classes).double() if labelled else each[:, :8] for each in targets]
    score = _accuracy if labelled else _r2
    fits = tuple(
        LinearFit(
            part.name,
            score(x[1::2] @ _ridge(x[::2], y[::2]), y[1::2]),
            score(other_x @ _ridge(x, y), other_y),
        )
        for part, x, y, other_x, other_y in zip(some, xs, ys, xs[::-1], ys[::-1], strict=True)
    )
    guess = max(float(y.mean(0).max()) for y in ys) if labelled else 0.0
    return ("accuracy" if labelled else "R2"), guess, fits


def _features(part: Part, inputs: Sequence[str]) -> torch.Tensor:
    """The inputs as numbers: every so many values of a row, or how often each word occurs in it."""
    rows = min(len(part.columns[name]) for name in inputs)
    made = []
    for name in inputs:
        values = part.columns[name][:rows]
        if not values.is_floating_point() and values.shape[1] > 1 and int(values.max()) >= _TOKENS:
            counts = torch.zeros(rows, _FEATURES, dtype=torch.double)
            made.append(counts.scatter_add_(1, values.long() % _FEATURES, torch.ones(values.shape).double()))
        else:
            made.append(values[:, :: -(-values.shape[1] // _FEATURES)].double())
    return torch.cat(made, dim=1).nan_to_num()


def _ridge(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The weights of a linear model with a small penalty."""
    return torch.linalg.solve(x.T @ x + _DECAY * len(x) * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)


def _accuracy(predicted: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((predicted.argmax(1) == wanted.argmax(1)).double().mean())


def _r2(predicted: torch.Tensor, wanted: torch.Tensor) -> float:
    left, all_ = ((predicted - wanted) ** 2).sum(), ((wanted - wanted.mean(0)) ** 2).sum()
    return max(-1.0, float(1 - left / all_)) if all_ > 0 else 0.0
