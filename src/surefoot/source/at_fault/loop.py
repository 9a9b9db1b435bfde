"""Searches for the parts of a training loop: optimizers, schedulers, backwards, evaluations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from surefoot.source.at_fault import modules
from surefoot.source.at_fault.case import Case, called, name
from surefoot.source.program import At

_OPTIMIZERS = re.compile(
    r"(\w*[a-z])?(SGD|Adam|AdamW|Adamax|NAdam|RAdam|Adagrad|Adadelta|RMSprop|Rprop|LBFGS|Muon|Adafactor)"
)
_SCHEDULERS = re.compile(r"\w+LR|\w*WarmRestarts|ReduceLROnPlateau")


def is_no_grad(node: ast.With) -> bool:
    return any(word in ast.unparse(item.context_expr) for item in node.items for word in ("no_grad", "inference_mode"))


def optimizers(case: Case) -> list[At]:
    """The calls that make optimizers, those of the kind that the rule named first."""
    found = [each for each in case.program.calls if _OPTIMIZERS.fullmatch(name(each))]
    return sorted(found, key=lambda each: name(each) != case.name.split(" ")[0])


def schedulers(case: Case) -> list[At]:
    return [each for each in case.program.calls if _SCHEDULERS.fullmatch(name(each))]


def scheduler_steps(case: Case) -> list[At]:
    return [
        each for each in called(case, "step") if re.search(r"sched|lr|warm|decay|plateau|cosine", object_of(each), re.I)
    ]


def object_of(at: At) -> str:
    function = getattr(at.node, "func", None)
    return ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""


def steps(case: Case) -> list[At]:
    """The calls of `step` that update weights."""
    other = {each.node for each in scheduler_steps(case)}
    return [each for each in called(case, "step") if each.node not in other]


def training_loop(case: Case) -> Iterator[At]:
    """The innermost loop around a backward."""
    for each in called(case, "backward"):
        yield from (each.other(loop) for loop in case.program.loops(each)[:1])


def stray(case: Case, *names: str) -> list[At]:
    """Calls of these names, those inside the loop of training last."""
    loops = {each.node for each in training_loop(case)}
    found = called(case, *names)
    return sorted(found, key=lambda each: any(loop in loops for loop in case.program.loops(each)))


def in_loop(case: Case, *names: str) -> list[At]:
    """Calls of these names inside a loop, those in the loop of training first."""
    loops = {each.node for each in training_loop(case)}
    found = [each for each in called(case, *names) if case.program.loops(each)]
    return sorted(found, key=lambda each: not any(loop in loops for loop in case.program.loops(each)))


def without_gradients(case: Case) -> Iterator[At]:
    """The calls of a model, where gradients are off."""
    for each in case.program.calls:
        if not is_evaluated(case, each):
            continue
        if _forwards_run_by(case, each):
            yield each


def _forwards_run_by(case: Case, call: At) -> list[ast.FunctionDef]:
    """The methods of models that a call runs."""
    run = [each.node for each in case.program.runs(call)]
    return [node for node in run if isinstance(node, ast.FunctionDef) and node.name in ("forward", "__call__")]


def is_evaluated(case: Case, at: At) -> bool:
    for each in case.program.above(at.node):
        if isinstance(each, ast.With) and is_no_grad(each):
            return True
        if isinstance(each, ast.FunctionDef) and any("no_grad" in ast.unparse(part) for part in each.decorator_list):
            return True
    return False


_WRITES = (
    "mul_", "add_", "sub_", "div_", "copy_", "clamp_", "fill_", "zero_", "lerp_", "normal_", "uniform_",
    "masked_fill_", "index_add_", "scatter_",
)  # fmt: skip
"""Methods that write into a tensor."""


def written(case: Case) -> Iterator[At]:
    """Writes to tensors in a loop: `p.data.mul_(0.99)`, `w.copy_(...)`, `x += 1` of an attribute."""
    found = in_loop(case, *_WRITES)
    yield from sorted(found, key=lambda each: "data" not in object_of(each))


def inplace(case: Case) -> Iterator[At]:
    """Writes into a value in place: `x += 1`, `x[0] = 1`, `x.mul_(2)`."""
    yield from _inplace(case.near(case.program.nodes))


def _inplace(nodes: Iterable[At]) -> Iterator[At]:
    for each in nodes:
        if (
            isinstance(each.node, ast.AugAssign)
            or (name(each).endswith("_") and not name(each).endswith("__"))
            or (isinstance(each.node, ast.Assign) and isinstance(each.node.targets[0], ast.Subscript))
        ):
            yield each


def inplace_in(case: Case, *names: str) -> Iterator[At]:
    """Writes in place inside of methods of the class that the rule named."""
    inside = {node for each in modules.method(case, *names) for node in ast.walk(each.node)}
    yield from (each for each in _inplace(case.program.nodes) if each.node in inside)


def calls_without_optimizer(case: Case) -> list[At]:
    """Calls of the network that the rule named, where gradients are on; last those of variables in an optimizer."""
    kinds = {each.node for each in modules.the_class(case)}
    optimized = {word for each in optimizers(case) for word in re.findall(r"\w+", ast.unparse(each.node))}
    found = [
        each
        for each in case.program.calls
        if not is_evaluated(case, each)
        and any(case.program.class_around(each.other(method)) in kinds for method in _forwards_run_by(case, each))
    ]
    evaluating = {case.program.scope(each) for each in called(case, "eval")}
    return sorted(found, key=lambda each: (case.program.scope(each) in evaluating, name(each) in optimized))


def evaluated_with_gradients(case: Case) -> Iterator[At]:
    """The calls of a model beside a call of `eval()`, where gradients are on."""
    scopes = {case.program.scope(each) for each in called(case, "eval")}
    for each in case.program.calls:
        if case.program.scope(each) in scopes and not is_evaluated(case, each) and _forwards_run_by(case, each):
            yield each


def first_backward(case: Case) -> list[At]:
    """The backwards of the loss on the named line, in order of the source."""
    start = case.start
    scope = case.program.scope(start) if start is not None else None
    found = [each for each in called(case, "backward") if start is None or case.program.scope(each) is scope]
    return sorted(found, key=lambda each: each.line)


def made_again(case: Case) -> Iterator[At]:
    """After an optimizer was made: assignments of new modules or parameters to attributes of a model."""
    made = optimizers(case)
    yield from (each for each in made if any(word in ast.unparse(each.node) for word in ("copy", "clone", "detach")))
    for each in case.program.nodes:
        target = each.node.targets[0] if isinstance(each.node, ast.Assign) else None
        if not isinstance(each.node, ast.Assign) or not isinstance(target, ast.Attribute):
            continue
        if "self" not in ast.unparse(target) and any(isinstance(part, ast.Call) for part in ast.walk(each.node.value)):
            yield each
    names = {name(part) for each in made for part in case.program.made_of(each)} & set(case.program.classes)
    for each in case.program.calls:
        if name(each) in names and any(each.file == other.file and each.line > other.line for other in made):
            yield each


def given_to_optimizer(case: Case) -> Iterator[At]:
    """The parameters that optimizers are given: the list, where it is assigned."""
    for each in optimizers(case):
        given = getattr(each.node, "args", [])[:1] + [
            word.value for word in getattr(each.node, "keywords", ()) if word.arg == "params"
        ]
        for part in given:
            values = list(case.program.values(each.other(part)))
            yield from values
            yield each


def last_optimizer(case: Case) -> list[At]:
    return [each for each in case.program.calls if _OPTIMIZERS.fullmatch(name(each))][1:][::-1]


def evaluation_begins(case: Case) -> Iterator[At]:
    """The head of the block that turns gradients off around a call of a model."""
    for each in without_gradients(case):
        for around in case.program.above(each.node):
            if isinstance(around, ast.With) and is_no_grad(around):
                yield each.other(around.items[0].context_expr)
        yield each


def cut_by_hand(case: Case) -> list[At]:
    """Nothing unless a backward runs: without one, the update itself is at fault."""
    return []


def cleared(case: Case) -> Iterator[At]:
    """A `zero_grad` that runs between a backward and the update after it."""
    ordered = sorted((*called(case, "backward"), *called(case, "zero_grad"), *steps(case)), key=lambda each: each.line)
    for before, now, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
        if (name(before), name(now), name(after)) == ("backward", "zero_grad", "step"):
            yield now


def zero_grad_outside(case: Case) -> Iterator[At]:
    """A `zero_grad` that the loop of the updates does not reach."""
    loops = {loop for each in called(case, "backward") for loop in case.program.loops(each)[:1]}
    held = called(case, "zero_grad")
    yield from (each for each in held if not loops & set(case.program.loops(each)))


def benchmark(case: Case) -> Iterator[At]:
    for each in case.program.nodes:
        if isinstance(each.node, ast.Assign) and "benchmark" in ast.unparse(each.node.targets[0]):
            yield each
