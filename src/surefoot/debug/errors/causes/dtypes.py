"""A tensor has another dtype than the call takes."""

import re

from surefoot.debug.errors.words import of
from surefoot.records.explanation import Cause, Met, Raised

_SAME = re.compile(
    r"must have the same dtype|should be the same|expected scalar type|expected m1 and m2 to have the same"
)
_INDICES = re.compile(r"'indices' to have one of the following scalar types|tensors used as indices must be")
_TARGET = re.compile(r"expected target dtype|expected scalar type Long")


def cause(raised: Raised) -> Cause | None:
    target, tensors = raised.role("target"), raised.tensors
    if _TARGET.search(raised.message) and target is not None and target.dtype not in ("int64", "uint8"):
        said = f"The target {of(target)} is {target.dtype}. Class numbers must be int64."
        return Cause(
            said, f"Use `{target.name}.long()`, or make the labels as int64. {_of_same(raised)}".strip(), target.made
        )
    if _INDICES.search(raised.message):
        wrong = next(
            (each for each in tensors if each.dtype not in ("int64", "int32", "bool", "uint8") and not _own(each)), None
        )
        if wrong is not None:
            said = (
                f"{of(wrong)} is {wrong.dtype}. {raised.where} looks up rows by number: indices must be int64 or int32."
            )
            is_float = wrong.dtype.startswith(("float", "bfloat"))
            remedy = "leave out what turns them into floats." if is_float else f"`{wrong.name}.long()`."
            return Cause(said, f"Keep indices as integers that torch looks up: {remedy}", wrong.made[-1:])
    if "can't be cast to the desired output type" in raised.message:
        wrong = next((each for each in tensors if not each.dtype.startswith(("float", "bfloat"))), None)
        if wrong is not None:
            role = "The target " if wrong.role == "target" else ""
            said = f"{role}{of(wrong)} is {wrong.dtype}, and the result is a float."
            return Cause(said, f"Make it a float: `{wrong.name}.float()`.", wrong.made[-1:])
    if "could not infer output dtype" in raised.message and tensors:
        said = f"{of(tensors[0])} is {tensors[0].dtype}, and a mean is no whole number."
        return Cause(said, "Use `.float().mean()`.", tensors[0].made[-1:])
    if _SAME.search(raised.message):
        return _two(raised)
    return None


def _two(raised: Raised) -> Cause | None:
    kinds = list(dict.fromkeys(each.dtype for each in raised.tensors))
    if len(kinds) < 2:
        return None
    own = [each for each in raised.tensors if _own(each)]
    others = [each for each in raised.tensors if not own or each.dtype != own[0].dtype] or list(raised.tensors)
    told = " and ".join(f"{of(each)} is {each.dtype}" for each in [*others[:1], *(own[:1] or raised.tensors[1:2])])
    at = f" in {raised.where}" if raised.module is not None else ""
    wanted = own[0].dtype if own else kinds[1]
    said = f"Two dtypes meet{at}: {told}."
    remedy = f"Convert one of them: `{others[0].name}.to(torch.{wanted})`. NumPy makes float64 by default."
    return Cause(said, remedy, others[0].made[-1:])


def _own(met: Met) -> bool:
    """Is it a parameter or buffer of the module?"""
    return met.role in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def _of_same(raised: Raised) -> str:
    given, target = raised.role("input"), raised.role("target")
    alike = given is not None and target is not None and given.shape == target.shape
    return "" if alike else "Float targets are probabilities, and have the shape of the input."
