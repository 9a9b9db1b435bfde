"""Searches for data sets, loaders and what divides, orders or scales samples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from surefoot.source.at_fault.case import Case, called, name
from surefoot.source.at_fault.modules import construction, method
from surefoot.source.program import At

EVALUATION = re.compile(r"val|test|held|eval|dev|unseen|check", re.I)


def loaders(case: Case) -> list[At]:
    """The calls that make data loaders, those of the data set that the rule named first."""
    kind = case.name.rpartition(" ")[2]
    found = [each for each in case.program.calls if name(each) == "DataLoader"]
    return sorted(found, key=lambda each: kind not in _kinds_of_data(case, each))


def _kinds_of_data(case: Case, loader: At) -> set[str]:
    given = getattr(loader.node, "args", [])[:1] + [
        word.value for word in getattr(loader.node, "keywords", ()) if word.arg == "dataset"
    ]
    kinds = (each.node for value in given for each in case.program.classes_of(loader.other(value)))
    return {each.name for each in kinds if isinstance(each, ast.ClassDef)}


def evaluation_loaders(case: Case, words: tuple[str, ...] = ()) -> list[At]:
    """The loaders of an evaluation by the names around them, those that are given one of these words first."""

    def order(each: At) -> tuple[bool, bool]:
        if not isinstance(each.node, ast.Call):
            return True, True
        given = {word.arg for word in each.node.keywords if ast.unparse(word.value) != "False"}
        name_of = ast.unparse(case.program.statement(each).node).split("DataLoader")[0]
        said = name_of + "".join(map(ast.unparse, each.node.args[:1]))
        return not given & set(words), not EVALUATION.search(said)

    return sorted(loaders(case), key=order)


def split(case: Case) -> list[At]:
    """What divides samples into training and evaluation, or takes some of them."""
    found = called(case, "random_split", "Subset", "train_test_split", "split")
    slices = [each for each in case.program.nodes if _is_split(each)]
    return [*(each for each in found if name(each) != "split"), *slices]


def _is_split(at: At) -> bool:
    """Is this an assignment of a part of samples to a name for evaluation, or for training?"""
    if not isinstance(at.node, ast.Assign):
        return False
    said = " ".join(ast.unparse(each) for each in at.node.targets)
    part = any(isinstance(each, ast.Subscript) for each in ast.walk(at.node.value))
    return part and EVALUATION.search(said) is not None


def data_of(case: Case) -> list[At]:
    """The statement that makes the data set that the rule named, for evaluation if its name says so."""
    found = construction(case)
    return sorted(found, key=lambda each: not EVALUATION.search(ast.unparse(case.program.statement(each).node)))


def scaled(case: Case) -> Iterator[At]:
    """Divisions and products by a constant where samples are made: in data sets, at the module and in functions."""
    for each in case.program.nodes:
        if isinstance(each.node, ast.BinOp) and isinstance(each.node.op, ast.Div | ast.Mult):
            sides = [side for side in (each.node.left, each.node.right) if isinstance(side, ast.Constant)]
            if any(isinstance(side.value, int | float) and abs(side.value) >= 100 for side in sides):
                yield each


def sorts(case: Case) -> list[At]:
    return called(case, "sort", "sorted", "msort", "argsort", "lexsort")


def batch_taken(case: Case) -> list[At]:
    """Where a batch is taken: `next(iter(loader))`, or the head of a loop over a loader."""
    found = [each for each in called(case, "next") if "iter" in ast.unparse(each.node)]
    breaks = [each for each in case.program.nodes if isinstance(each.node, ast.Break)]
    return [*found, *(each for each in breaks if case.program.loops(each)), *called(case, "iter")]


def batch_size(case: Case) -> Iterator[At]:
    """The number of samples that a loader is given."""
    for each in training_loaders(case) or loaders(case):
        given = [word.value for word in each.node.keywords if word.arg == "batch_size"] or each.node.args[1:2]  # type: ignore[attr-defined]
        for part in given:
            yield from case.program.values(each.other(part))
            yield each.other(part)
    for each in case.program.nodes:
        is_number = isinstance(each.node, ast.Assign) and isinstance(each.node.value, ast.Constant)
        if is_number and re.search(r"batch", ast.unparse(each.node.targets[0]), re.I):  # type: ignore[attr-defined]
            yield each


def shuffles(case: Case) -> list[At]:
    return called(case, "randperm", "permutation", "shuffle", "roll", "flip")


def shares(case: Case) -> list[At]:
    """What an iterable data set yields: where it should take its worker's share."""
    found = method(case, "__iter__", "_items", "shards", "__next__")
    return [
        each.other(node) for each in found for node in ast.walk(each.node) if isinstance(node, ast.For | ast.Return)
    ]


def training_loaders(case: Case) -> list[At]:
    """The loaders without an order of their own, those of the data set that the rule named first."""
    return [each for each in loaders(case) if "shuffle=True" not in ast.unparse(each.node)]
