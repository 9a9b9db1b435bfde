"""Writes a loss as a sum of terms, by its graph: squares, exponentials, logarithms and products, with their factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from surefoot.checks.engine.autograd_graph import operation
from surefoot.torch_inside.autograd import saved, signed

_SAME = {"View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "ToCopy", "Alias", "Contiguous"}
"""Operations that keep every number."""
_SPREAD = {"Expand", "Stack", "Cat"}
_MOST_STEPS = 600
_ORDER = 1 << 63


class Source(NamedTuple):
    """A tensor of the graph: the node that made it, and which output of that node it is."""

    node: Any
    output: int


class Power(NamedTuple):
    """A term of one tensor: itself ("plain"), its square, its logarithm, or the exponential of its multiple."""

    kind: str
    of: Source
    rate: float = 1.0
    """For an exponential: the factor of the tensor in the exponent."""


class Product(NamedTuple):
    """A square times a power of another tensor: the error of a prediction, weighed by a learned precision."""

    of: Source
    rate: float
    """The exponent of the other tensor, or the factor in the exponent if that tensor is an exponential."""
    exponential: bool


Atom = Power | Product


@dataclass
class Term:
    """One atom of a loss: its factor, the shape of its values, and how it was reduced, outermost first."""

    factor: float = 0.0
    shape: tuple[int, ...] = ()
    reduced: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    """For each reduction: its name, its dimensions, and how many dimensions there were."""


@dataclass
class _Walk:
    terms: dict[Atom, Term] = field(default_factory=dict)
    steps: int = 0


def terms_of(root: Any) -> dict[Atom, Term]:
    """The terms of which the loss is a sum, as far as sums, means and products with numbers lead to them."""
    walk = _Walk()
    waiting: list[tuple[Source, float, Any]] = [(Source(root, 0), 1.0, ())]
    while waiting:
        source, factor, reduced = waiting.pop()
        walk.steps += 1
        if walk.steps > _MOST_STEPS:
            return {}
        below = list(_summands(source, factor, reduced))
        if below:
            waiting += below
            continue
        atom, times, shape = _atom(source)
        term = walk.terms.setdefault(atom, Term())
        term.factor += factor * times
        term.shape, term.reduced = shape, reduced
    return walk.terms


def _summands(source: Source, factor: float, reduced: Any) -> Iterator[tuple[Source, float, Any]]:
    """What a linear operation adds up; nothing if the operation is not linear."""
    node, name = source.node, operation(source.node)
    inputs = [Source(*each) if each[0] is not None else None for each in node.next_functions]
    if name in _SAME | _SPREAD:
        yield from ((each, factor, reduced) for each in inputs if each)
    elif name == "Neg":
        yield inputs[0], -factor, reduced  # type: ignore[misc]
    elif name in ("Add", "Sub", "Rsub"):
        signs = {"Add": (1, 1), "Sub": (1, -1), "Rsub": (-1, 1)}[name]
        scales = (1.0, float(saved(node, "alpha") or 1))
        if name == "Rsub":
            scales = scales[::-1]
        for each, sign, scale in zip(inputs, signs, scales, strict=False):
            if each:
                yield each, factor * sign * scale, reduced
    elif name in ("Sum", "Mean") and inputs[0]:
        shape = tuple(saved(node, "self_sym_sizes") or ())
        dims = _dims(node, len(shape))
        count = 1.0
        for dim in dims if name == "Mean" else ():
            count *= shape[dim] if shape else 1
        yield inputs[0], factor / count, (*reduced, (name.lower(), dims, len(shape)))
    elif (scaled := _scaled(source)) is not None:
        yield scaled[0], factor * scaled[1], reduced


def _dims(node: Any, count: int) -> tuple[int, ...]:
    """The dimensions of a sum or mean."""
    return tuple(signed(dim) % max(1, count) for dim in saved(node, "dim") or range(count))


def _scaled(source: Source) -> tuple[Source, float] | None:
    """What a product or quotient with a single constant multiplies, and by how much."""
    node, name = source.node, operation(source.node)
    if name == "Neg":
        return Source(*node.next_functions[0]), -1.0
    if name not in ("Mul", "Div"):
        return None
    of = [each for each in node.next_functions if each[0] is not None]
    constants: list[Any] = [saved(node, each) for each in ("other", "self")]
    numbers = [each for each in constants if isinstance(each, int | float) or _is_number(each)]
    if len(of) != 1 or not numbers or (name == "Div" and node.next_functions[0][0] is None):
        return None
    by = float(numbers[0])
    if name == "Div":
        return (Source(*of[0]), 1 / by) if by else None
    return Source(*of[0]), by


def _is_number(saved: object) -> bool:
    return isinstance(saved, torch.Tensor) and saved.numel() == 1


def _unscaled(source: Source) -> tuple[Source, float]:
    """The tensor before it was multiplied by numbers or reshaped, and the factor."""
    factor = 1.0
    while source.node is not None:
        if operation(source.node) in _SAME:
            source = Source(*source.node.next_functions[0])
        elif (scaled := _scaled(source)) is not None:
            source, factor = scaled[0], factor * scaled[1]
        else:
            break
    return source, factor


def _shape(node: Any) -> tuple[int, ...]:
    if operation(node) not in ("Exp", "Pow", "Mul", "Div"):
        return ()
    for name in ("result", "self", "other"):
        kept = saved(node, name)
        if isinstance(kept, torch.Tensor):
            return tuple(kept.shape)
    return ()


def _atom(source: Source) -> tuple[Atom, float, tuple[int, ...]]:
    """A tensor as an atom, with the factor that numbers inside it give, and its shape."""
    source, factor = _unscaled(source)
    shape = _shape(source.node)
    if (squared := _squared(source)) is not None:
        of, times = squared
        if (weighed := _weighed_error(of)) is not None:
            return weighed[0], factor * times * weighed[1], shape
        inner, _, _ = _atom(of)
        if isinstance(inner, Power) and inner.kind == "exponential":
            return inner._replace(rate=2 * inner.rate), factor * times, shape
        return Power("square", of), factor * times, shape
    if operation(source.node) == "Exp":
        of, rate = _unscaled(Source(*source.node.next_functions[0]))
        return Power("exponential", of, round(rate, 6)), factor, shape
    if operation(source.node) == "Log":
        return _logarithm(source, factor, shape)
    if (product := _weighed(source)) is not None:
        return product[0], factor * product[1], shape
    return Power("plain", source), factor, shape


def _logarithm(source: Source, factor: float, shape: tuple[int, ...]) -> tuple[Atom, float, tuple[int, ...]]:
    of, _ = _unscaled(Source(*source.node.next_functions[0]))
    inner, _, _ = _atom(of)
    if isinstance(inner, Power) and inner.kind == "exponential":
        return Power("plain", inner.of), factor * inner.rate, shape
    if isinstance(inner, Power) and inner.kind == "square":
        return Power("logarithm", inner.of), 2 * factor, shape
    return Power("logarithm", of), factor, shape


def _squared(source: Source) -> tuple[Source, float] | None:
    """What is squared, without its constant factor, and the square of that factor."""
    node, name = source.node, operation(source.node)
    if name == "Pow" and saved(node, "exponent") == 2:
        of, by = _unscaled(Source(*node.next_functions[0]))
        return of, by * by
    both = [Source(*each) for each in node.next_functions] if name == "Mul" else []
    if len(both) == 2 and both[0] == both[1] and both[0].node is not None:
        of, by = _unscaled(both[0])
        return of, by * by
    return None


def _weighed_error(source: Source) -> tuple[Product, float] | None:
    """The square of an error that is divided by, or multiplied with, a learned number for each element."""
    for _, weight, sign in _parts(source):
        if (known := _weight(weight)) is not None:
            return Product(known.of, 2 * sign * known.rate, known.exponential), known.factor ** (2 * sign)
    return None


def _weighed(source: Source) -> tuple[Product, float] | None:
    """A square times a learned number for each element, and its constant factor."""
    for error, weight, sign in _parts(source):
        error, times = _unscaled(error)
        squared = (error, 1.0) if operation(error.node) == "MseLoss" else _squared(error)
        known = _weight(weight) if squared is not None else None
        if squared is not None and known is not None:
            factor = times * squared[1] * known.factor**sign
            return Product(known.of, sign * known.rate, known.exponential), factor
    return None


def _parts(source: Source) -> list[tuple[Source, Source, int]]:
    """Both sides of a product of two learned tensors, as error, weight and the sign of the weight's exponent."""
    node, name = source.node, operation(source.node)
    if name not in ("Mul", "Div") or [each[0] is None for each in node.next_functions] != [False, False]:
        return []
    one, other = (Source(*each) for each in node.next_functions)
    if one == other:
        return []
    return [(one, other, 1), (other, one, 1)] if name == "Mul" else [(one, other, -1)]


class _Weight(NamedTuple):
    """A learned precision or spread: the tensor behind it, its exponent, and its constant factor."""

    of: Source
    rate: float
    exponential: bool
    factor: float


def _weight(source: Source) -> _Weight | None:
    source, factor = _unscaled(source)
    if factor <= 0 or source.node is None:
        return None
    if (squared := _squared(source)) is not None:
        inner = _weight(squared[0])
        return inner and _Weight(inner.of, 2 * inner.rate, inner.exponential, factor * squared[1] * inner.factor**2)
    name = operation(source.node)
    if name == "Exp":
        of, rate = _unscaled(Source(*source.node.next_functions[0]))
        return _Weight(of, round(rate, 6), True, factor)
    if name == "Reciprocal":
        inner = _weight(Source(*source.node.next_functions[0]))
        return inner and _Weight(inner.of, -inner.rate, inner.exponential, factor / inner.factor)
    if name in ("Softplus", "Add", "Clamp", "ClampMin"):
        return _Weight(source, 1.0, False, factor)
    return None
