"""Recognises a loss by its gradient, from a prediction and a target alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

_ALIKE = 0.98
"""Gradients whose cosine is above this point the same way."""
_MOST_ROWS = 256
"""The most rows of classes that are read, evenly spread."""
_MANY = 16
"""This many numbers do not all lie on one side by chance."""
_LARGE = 20.0
"""Predictions above this size, and this many times larger than their targets, are far off."""


@dataclass
class Signature:
    """What a loss does to a prediction.

    Kinds: `classes`, the gradient of cross-entropy on logits; `picked`, only the target class gets a gradient;
    `weighed`, each class by its share of the target; `averaged`, the gradient of an expected probability; `binary`,
    the gradient of binary cross-entropy on logits; `distance`, along the difference from the target; `sided`, all
    numbers move towards their targets or all away, by varying amounts; `towards`, the gradient correlates with the
    target; `overlap`, the gradient of Dice, Jaccard and their like on shares.
    """

    kind: str
    sign: int
    """1 if the prediction moves towards the target, -1 if it moves away, 0 if both happen."""
    values: str
    """What the prediction holds: probabilities, log-probabilities, shares (between 0 and 1), or other numbers."""
    targets: int
    constant: float | None
    class_numbers: int = 0
    even: bool = True
    """All samples of a class have equal weight: they are not multiplied by a return or an advantage."""
    excess: float = 0.0
    """The loss relative to that of a guess, or the prediction's size relative to that of the targets."""


def signature_of(given: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor) -> Signature | None:
    """Recognises the loss between a prediction and a target by its gradient. Returns None if it is unknown."""
    shares = _class_shares(given, target)
    if shares is not None:
        dim, chosen, of_target = shares
        rows, slopes = (each.movedim(dim, -1).flatten(0, -2)[chosen] for each in (given, gradient))
        of_classes = _of_classes(rows, slopes, of_target)
        if of_classes is not None:
            return of_classes
    if given.numel() == target.numel() and _squeezed(given) == _squeezed(target):
        return _of_numbers(given.flatten(), gradient.flatten(), target.flatten().float())
    if given.dim() == 2 and given.shape[1] == 2 and target.is_floating_point() and target.numel() == len(given):
        return _of_mean(given[:, 0], gradient[:, 0], target.flatten().float())
    return None


def overlap_of(given: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor) -> Signature | None:
    """Recognises an overlap of shares with a mask: within a sample, the gradient has one value inside the mask and one
    of the other sign outside. A penalty on a mask leaves the outside alone, and an entropy varies with the share.
    """
    if given.shape != target.shape or given.dim() < 2 or not bool(((target == 0) | (target == 1)).all()):
        return None
    groups = [each.flatten(0, 1).flatten(1) if each.dim() > 2 else each for each in (gradient, target.float())]
    signs = set()
    for slopes, mask in zip(*groups, strict=True):
        inside, outside = slopes[mask == 1], slopes[mask == 0]
        if len(inside) and len(outside):
            size = float(slopes.abs().max())
            if max(float(inside.max() - inside.min()), float(outside.max() - outside.min())) > 1e-3 * size:
                return None
            signs.add(0 if float(inside[0]) * float(outside[0]) >= 0 else 1 if float(inside[0]) < 0 else -1)
    return Signature("overlap", signs.pop(), "shares", len(given), None) if signs in ({1}, {-1}) else None


def _of_mean(given: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor) -> Signature | None:
    """The same for a mean that is predicted together with its spread."""
    counted = gradient != 0
    side = _side(gradient[counted], given[counted], target[counted])
    return Signature("sided", side, "numbers", len(given), None) if side else None


def is_cut(given: torch.Tensor) -> bool:
    """Are no numbers negative, and many zero?"""
    return bool((given >= 0).all()) and 0.05 < float((given == 0).float().mean()) < 0.95


def _class_shares(given: torch.Tensor, target: torch.Tensor) -> tuple[int, torch.Tensor, torch.Tensor] | None:
    """The dimension of the classes, the rows that are read, and how the target is distributed over classes there."""
    for dim in dict.fromkeys((1, given.dim() - 1)):
        if not 0 < dim < given.dim() or given.shape[dim] < 2:
            continue
        classes, rest = given.shape[dim], (*given.shape[:dim], *given.shape[dim + 1 :])
        if not target.is_floating_point() and _squeezed_sizes(rest) == _squeezed(target) and target.dtype != torch.bool:
            numbers = target.flatten().long()
            if bool((numbers < classes).all()) and bool((numbers >= 0).any()):
                chosen = _some(numbers >= 0)
                return dim, chosen, torch.nn.functional.one_hot(numbers[chosen], classes).float()
        if target.shape == given.shape:
            shares = target.float().movedim(dim, -1).reshape(-1, classes)
            if bool((shares >= 0).all()) and bool(((shares.sum(1) - 1).abs() < 1e-3).all()):
                chosen = _some(shares.sum(1) > 0)
                return dim, chosen, shares[chosen]
    return None


def _some(rows: torch.Tensor) -> torch.Tensor:
    """The indices of true rows, thinned out evenly if there are many."""
    numbers = rows.nonzero().flatten()
    return numbers[:: -(-len(numbers) // _MOST_ROWS)]


def _of_classes(given: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor) -> Signature | None:
    moved = gradient.ne(0).any(1)
    given, gradient, target = given[moved], gradient[moved], target[moved]
    if len(given) < 4:
        return None
    values, guessed = _kind_of(given), given.softmax(1)
    hard = bool((target.max(1).values == 1).all())
    of_logits = guessed - target
    pushed = gradient * (target > 0)
    if hard and bool((gradient - pushed).abs().max() <= 1e-6 * gradient.abs().max()):
        kind, along = "picked", -target / (given.clamp(min=1e-12) if values == "probabilities" else 1)
        if values == "probabilities" and not _even(_weights(gradient, along), target)[1]:
            along, values = -target, "plain probabilities"
    elif _cosine(gradient, of_logits) > max(_ALIKE, _cosine(gradient, given - target)):
        kind, along = "classes", of_logits
    elif not hard and _cosine(gradient, target) > 0.9999:
        kind, along = "weighed", -target
    elif not hard and _cosine(gradient, along := guessed * ((guessed * target).sum(1, keepdim=True) - target)) > 0.9999:
        kind = "averaged"
    else:
        return None
    sign, even = _even(_weights(gradient, along), target)
    first = target[0].argmax() if bool((target == target[:1]).all()) else None
    excess = 0.0
    if kind == "classes" and values == "numbers":
        surprise = float(-(target * given.log_softmax(1)).sum(1).mean())
        excess = (surprise - 1) / math.log(given.shape[1])
    constant = None if first is None else float(first)
    return Signature(kind, sign, values, len(given), constant, even=even, excess=excess)


def _of_numbers(given: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor) -> Signature | None:
    counted = gradient != 0
    given, gradient, target = given[counted], gradient[counted], target[counted]
    if len(given) < 4:
        return None
    yes_or_no = bool(((target == 0) | (target == 1)).all())
    constant = float(target[0]) if bool((target == target[0]).all()) else None
    apart, off = given - target, given.sigmoid() - target
    on_target = bool((apart == 0).any())  # where a distance has no gradient
    if not on_target and (_spread(gradient / apart) < 1e-3 or _is_by_sign(gradient, apart)):
        kind, along = "distance", apart
    elif yes_or_no and _is_of_logits(given, gradient, target):
        kind, along = "binary", off
    elif not yes_or_no and (side := _side(gradient, given, target)):
        kind, along = "sided", side * gradient
    elif yes_or_no and constant is None and abs(_correlation(gradient, target)) > 0.5:
        kind, along = "towards", -(target - target.mean())
    else:
        return None
    values = "shares" if _is_share(given) else "numbers"
    numbers = 0
    if kind == "distance" and bool((target == target.round()).all() & (target >= 0).all() & (target < 1000).all()):
        numbers = int(target.max()) + 1
    sign = 1 if float((gradient * along).sum()) > 0 else -1
    excess = 0.0
    if kind == "binary" and values == "numbers":
        losses = torch.nn.functional.binary_cross_entropy_with_logits(given, target)
        excess = (float(losses) - 1) / math.log(2)
    elif kind == "distance" and float(given.square().mean()) > _LARGE**2:
        excess = float((given.square().mean() / target.square().mean().clamp(min=1e-12)).sqrt()) / _LARGE * 2
    return Signature(kind, sign, values, len(given), constant, numbers, excess=excess)


def _side(gradient: torch.Tensor, given: torch.Tensor, target: torch.Tensor) -> int:
    """1 if every number moves towards its target, -1 if every one moves away, 0 if neither is certain.

    It is certain if many numbers lie on both sides of their targets, and the negated target does not explain the
    gradient as well.
    """
    with_it, with_negative = gradient * (given - target) > 0, gradient * (given + target) > 0
    above = float((given > target).float().mean())
    if len(given) < _MANY or not 0.2 < above < 0.8 or bool(with_negative.all() | ~with_negative.any()):
        return 0
    return 1 if bool(with_it.all()) else -1 if not bool(with_it.any()) else 0


def _is_of_logits(given: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor) -> bool:
    """Is this the gradient of binary cross-entropy on logits, not on probabilities?"""
    off = given.sigmoid() - target
    if bool((target == target[0]).all()) and _spread(gradient) < 2 * _spread(gradient / off) + 1e-3:
        return False  # the mean of an output, with equal weights
    if _is_share(given):
        of_shares = (given - target) / (given * (1 - given))
        spread, other = (
            max(_spread((gradient / each)[target == side]) for side in target.unique()) for each in (off, of_shares)
        )
        return spread < min(2e-2, other)
    return abs(float(torch.cosine_similarity(gradient, off, dim=0))) > _ALIKE


def _is_share(given: torch.Tensor) -> bool:
    return bool((given > 0).all() & (given < 1).all())


def _kind_of(rows: torch.Tensor) -> str:
    if bool((rows >= -1e-4).all()) and bool(((rows.sum(1) - 1).abs() < 1e-2).all()):
        return "probabilities"
    logarithms = bool(rows.max() < 1e-2) and bool((rows.logsumexp(1).abs() < 1e-2).all())
    return "log-probabilities" if logarithms else "numbers"


def _weights(gradient: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
    """How far each row of a gradient goes in the given direction."""
    return (gradient * along).sum(1) / (along * along).sum(1).clamp(min=1e-20)


def _even(weights: torch.Tensor, target: torch.Tensor) -> tuple[int, bool]:
    """The common direction of all rows, and whether rows of one class have equal weight."""
    sign = 1 if bool((weights > 0).all()) else -1 if bool((weights < 0).all()) else 0
    classes = target.argmax(1)
    return sign, all(_is_even(weights[classes == each]) for each in classes.unique()[:64])


def _is_even(weights: torch.Tensor) -> bool:
    return _spread(weights) < 2e-2


def _spread(weights: torch.Tensor) -> float:
    """The range of numbers, relative to their mean size."""
    return float((weights.max() - weights.min()) / weights.abs().mean().clamp(min=1e-20))


def _is_by_sign(gradient: torch.Tensor, apart: torch.Tensor) -> bool:
    """Is this the gradient of an absolute error, or its negative?"""
    same = gradient.sign() == apart.sign()
    return _is_even(gradient.abs()) and bool(same.all() | ~same.any()) and bool((apart > 0).any() & (apart < 0).any())


def _cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    """How well most rows are aligned, in either direction."""
    return float(torch.cosine_similarity(first, second, dim=1).abs().quantile(0.1))


def _correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    return float(torch.cosine_similarity(first - first.mean(), second - second.mean(), dim=0))


def _squeezed(tensor: torch.Tensor) -> tuple[int, ...]:
    return _squeezed_sizes(tuple(tensor.shape))


def _squeezed_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size != 1)
