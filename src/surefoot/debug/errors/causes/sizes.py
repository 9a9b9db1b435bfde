"""Shapes that an operator or a function cannot combine."""

import re

from surefoot.debug.errors.words import of
from surefoot.records.explanation import Cause, Met, Raised

_MATMUL = re.compile(
    r"shapes cannot be multiplied|for first two dimensions of batch2|size mismatch, got input|batch1 dim 2"
)
_PRODUCTS = ("MatMult", "matmul", "bmm", "mm", "mv", "dot")
_ADD = re.compile(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)"
)
_CAT = re.compile(r"Sizes of tensors must match except in dimension (\d+). Expected size (\d+) but got size (\d+)")
_VIEW = re.compile(r"shape '(\[.*?\])' is invalid for input of size (\d+)")
_BATCH = re.compile(r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)")
_TARGET = re.compile(
    r"Target size \(torch.Size\(\[.*?\]\)\) must be the same as input size|Using a target size .* different"
)
_DIMENSION = re.compile(
    r"Dimension out of range|number of dimensions|must be a \dD tensor|must be \dD|dimension specified as"
)
_EXPAND = re.compile(r"The expanded size of the tensor|shape of the mask|shape mismatch: value tensor|einsum\(\)")


def cause(raised: Raised) -> Cause | None:
    if raised.is_backward or (
        raised.module is not None and raised.function == raised.module.kind and "target" not in _roles(raised)
    ):
        return None
    tensors, message = raised.tensors, raised.message
    both = " and ".join(of(each) for each in tensors[:2])
    made = tuple(place for each in tensors for place in each.made[:1])
    if found := _BATCH.search(message):
        given, target = raised.role("input"), raised.role("target")
        what = f": input {of(given)}, target {of(target)}" if given and target else ""
        said = f"The input has {found[1]} samples and the target {found[2]}{what}."
        return Cause(said, "Cut or reshape both in the same way.", made)
    if _TARGET.search(message) and len(tensors) > 1:
        given, target = raised.role("input") or tensors[0], raised.role("target") or tensors[1]
        said = f"The input {of(given)} and the target {of(target)} must have one shape."
        return Cause(said, _squeezed(given, target), made)
    if found := _VIEW.search(message):
        what = of(tensors[0]) if tensors else "the tensor"
        said = f"`{raised.function}` cannot make {found[1]}, which is {_product(found[1])} elements, "
        said += f"of {what} with {found[2]} elements."
        return Cause(said, "The sizes must multiply to the number of elements; one of them may be -1.", made)
    if not tensors:  # from here on, the message says too little without the shapes
        return None
    if _MATMUL.search(message) and len(tensors) > 1 and raised.function in _PRODUCTS:
        said = f"{both} cannot be multiplied: the last dimension of the first must be the second to last of the second."
        return Cause(said, "Transpose one of them, or change what makes it.", made)
    if found := _ADD.search(message):
        if len(tensors) < 2:
            return None
        said = f"{both} do not fit: {found[1]} and {found[2]} in dimension {found[3]}, and neither is 1."
        return Cause(said, "Make the sizes equal, or 1 where one should be repeated.", made)
    if found := _CAT.search(message):
        every = ", ".join(of(each) for each in tensors)
        said = f"`cat` joins along dimension {found[1]}; all other sizes must agree: {every}."
        return Cause(
            f"{said} {found[2]} and {found[3]} differ.", "Pad or crop one of them, or change what makes it.", made
        )
    if any(each.search(message) for each in (_DIMENSION, _EXPAND, _MATMUL)):
        said = f"The shapes do not suit `{raised.function}`: {', '.join(of(each) for each in tensors)}."
        return Cause(said, "Add, remove or reorder dimensions before this line.", made)
    return None


def _roles(raised: Raised) -> set[str]:
    return {each.role for each in raised.met}


def _squeezed(given: Met, target: Met) -> str:
    longer, other = (given, target) if len(given.shape or ()) > len(target.shape or ()) else (target, given)
    if longer.shape and longer.shape == (*(other.shape or ()), 1):
        return f"Use `{longer.name}.squeeze(-1)`, or `{other.name}.unsqueeze(-1)`."
    return "Reshape one of them."


def _product(sizes: str) -> str:
    numbers = [int(each) for each in re.findall(r"-?\d+", sizes)]
    total = 1
    for each in numbers:
        total *= abs(each)
    return f"a multiple of {total}" if -1 in numbers else str(total)
