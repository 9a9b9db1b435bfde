"""Searches for modules, parameters and classes, by the names that a finding gives them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from surefoot.source.at_fault.case import Case, called, name
from surefoot.source.loop_body import name_of_call
from surefoot.source.program import At, Program, attribute_set, methods


def definition(case: Case) -> Iterator[At]:
    """The expression that a module or parameter was set to, by its path: `layers.0.norm`, `Net.head`."""
    parts = case.name.split(" ")[0].split(".")
    for count in range(len(parts), 0, -1):
        found = _walk(case.program, parts[:count])
        yield from found
    yield from construction(case)


def _walk(program: Program, parts: list[str]) -> list[At]:
    owners = [program.classes[parts[0]]] if parts[0] in program.classes else list(program.classes.values())
    parts = parts[1:] if parts[0] in program.classes else parts
    values: list[At] = []
    if parts and not parts[0].isdigit() and not any(_set_in(each, parts[0]) for each in owners):
        return []
    for part in parts:
        if part.isdigit():
            values = [entry for each in values for entry in _entries(program, each, int(part))] or values
        else:
            owners = owners if not values else [kind for each in values for kind in _kinds(program, each)]
            values = [value for each in owners for value in _set_in(each, part)]
            if not values:
                return []
    return values


def _set_in(owner: At, attribute: str) -> list[At]:
    return [owner.other(value) for _, value in attribute_set(owner.node, attribute)]


def _entries(program: Program, value: At, number: int) -> list[At]:
    """The entry of `nn.Sequential(...)` or `nn.ModuleList([...])`; of a comprehension, what it makes."""
    node = value.node
    if isinstance(node, ast.Call):
        parts = node.args
        if len(parts) == 1 and isinstance(
            parts[0], ast.Starred | ast.GeneratorExp | ast.ListComp | ast.List | ast.Name
        ):
            inner = parts[0].value if isinstance(parts[0], ast.Starred) else parts[0]
            if isinstance(inner, ast.Name):
                return [
                    entry for each in program.values(value.other(inner)) for entry in _entries(program, each, number)
                ]
            return _entries(program, value.other(inner), number)
        if len(parts) > number and not any(isinstance(each, ast.Starred) for each in parts):
            return [value.other(parts[number])]
        functions = [each for each in program.runs(value) if isinstance(each.node, ast.FunctionDef)]
        return [entry for each in functions for end in _ends(each) for entry in _entries(program, end, number)]
    if isinstance(node, ast.List | ast.Tuple):
        return [value.other(node.elts[number])] if number < len(node.elts) else []
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return [value.other(node.elt)]
    return []


def _ends(function: At) -> list[At]:
    nodes = [each for each in ast.walk(function.node) if isinstance(each, ast.Return) and each.value is not None]
    return [function.other(each.value) for each in nodes if each.value is not None]


def _kinds(program: Program, value: At) -> list[At]:
    found = list(program.classes_of(value))
    if isinstance(value.node, ast.Call) and not found:
        inner = [
            each
            for each in ast.walk(value.node)
            if isinstance(each, ast.Call) and name_of_call(each) in program.classes
        ]
        found = [program.classes[name_of_call(each)] for each in inner]
    return found


def the_class(case: Case) -> list[At]:
    """The class that the rule named."""
    word = re.split(r"[ .]", case.name)[0] if case.name else ""
    return [case.program.classes[word]] if word in case.program.classes else []


def method(case: Case, *names: str) -> list[At]:
    """A method of the class that the rule named."""
    return [each.other(part) for each in the_class(case) for part in methods(each.node) if part.name in names]


def in_class(case: Case, *names: str) -> list[At]:
    """Calls of these names in the class that the rule named; else anywhere in a class."""
    held = called(case, *names)
    owners = {each.node for each in the_class(case)}
    first = [each for each in held if case.program.class_around(each) in owners]
    first.sort(key=lambda each: "self." not in ast.unparse(case.program.statement(each).node))
    return first or [each for each in held if case.program.class_around(each) is not None]


def construction(case: Case) -> list[At]:
    """The call that makes an instance of the class that the rule named."""
    words = set(re.split(r"[ .]", case.name))
    return [each for each in case.program.calls if name(each) in words]


def named_in_seen(case: Case) -> list[At]:
    """A call of the function that the finding names first."""
    return called(case, *re.findall(r"[A-Za-z_]\w+", case.seen)[:1])


def not_saved(case: Case) -> Iterator[At]:
    """What a state leaves out: a buffer that is not persistent, or a plain attribute of the class."""
    last = case.name.split(" ")[0].rpartition(".")[2]
    for each in case.program.calls:
        given = each.node.args[:1]  # type: ignore[attr-defined]
        if name(each) == "register_buffer" and given and isinstance(given[0], ast.Constant) and given[0].value == last:
            yield each
    yield from definition(case)


def frozen(case: Case) -> list[At]:
    return called(case, "requires_grad_", "freeze") + [
        each
        for each in case.program.nodes
        if isinstance(each.node, ast.Assign) and ast.unparse(each.node.targets[0]).endswith(".requires_grad")
    ]


def modules_called(case: Case) -> Iterator[At]:
    """The calls of the modules that the finding names, the last named first: `first.0.narrow` is `self.narrow(...)`."""
    paths = re.findall(r"\b[A-Za-z_]\w*(?:\.\w+)+\b", case.seen)
    for path in reversed(paths):
        called_as = f"self.{path.rpartition('.')[2]}"
        yield from (each for each in case.program.calls if ast.unparse(each.node.func) == called_as)  # type: ignore[attr-defined]
    for path in paths:
        yield from definition(replace(case, name=path))


def lost_input(case: Case) -> Iterator[At]:
    """Calls in a forward that replace a value: `zeros_like(x)`, `x * 0`."""
    found = in_class(case, "zeros_like", "ones_like", "randn_like", "empty_like", "rand_like", "zeros", "full_like")
    yield from (each for each in found if getattr(case.program.scope(each), "name", "") != "__init__")
    for each in method(case, "forward", "__call__"):
        given = {part.arg for part in each.node.args.args} - {"self"}  # type: ignore[attr-defined]
        for node in ast.walk(each.node):
            names = {ast.unparse(target) for target in node.targets} if isinstance(node, ast.Assign) else set()
            if names & given and not names & {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}:  # type: ignore[attr-defined]
                yield each.other(node)


def set_anew(case: Case) -> Iterator[At]:
    """Assignments to the `weight` of a layer after it was made."""
    found = [each for each in case.program.nodes if isinstance(each.node, ast.Assign) and _sets_weight(each.node)]
    yield from sorted(found, key=lambda each: getattr(each.node.value, "attr", "") == "weight")  # type: ignore[attr-defined]


def _sets_weight(node: ast.Assign) -> bool:
    return any(ast.unparse(target).endswith((".weight", ".weight.data")) for target in node.targets)


def large_number(case: Case) -> Iterator[At]:
    for each in case.near(case.program.nodes):
        if isinstance(each.node, ast.Constant) and isinstance(each.node.value, float) and abs(each.node.value) > 6e4:
            yield each


def attention(case: Case) -> list[At]:
    return called(case, "scaled_dot_product_attention", "masked_fill", "tril", "triu", "flex_attention")
