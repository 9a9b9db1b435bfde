"""A finding as the searches of the source see it, and the searches that all subjects use."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from surefoot.source.loop_body import name_of_call
from surefoot.source.program import At, Program


@dataclass(frozen=True)
class Case:
    """A finding, as far as the search needs it."""

    program: Program
    file: str
    line: int
    """The line that the rule named; 0 if it named a module, a class or nothing."""
    name: str
    """The module, the class or the part that the rule named, if that is no line."""
    seen: str

    @cached_property
    def start(self) -> At | None:
        return self.program.at_line(self.file, self.line) if self.line else None

    def near(self, found: Iterable[At]) -> list[At]:
        """The nodes, nearest to the line that the rule named first: in its function, in its loop, then by distance."""
        start = self.start
        if start is None:
            return list(found)
        scope, loops = self.program.scope(start), self.program.loops(start)

        def distance(each: At) -> tuple[bool, bool, int, int]:
            inside = sum(loop in self.program.loops(each) for loop in loops)
            apart = each.file != start.file or self.program.scope(each) is not scope
            return apart, each.file != start.file, -inside, abs(each.line - self.line)

        return sorted(found, key=distance)

    @cached_property
    def flow(self) -> list[At]:
        """What the value on the named line is made of; without a line, what every loss is made of."""
        starts = [self.start] if self.start is not None else []
        if not starts or isinstance(starts[0].node, ast.For | ast.While | ast.With | ast.FunctionDef):
            starts = [self.program.statement(each) for each in called(self, "backward")]
        found: dict[ast.AST, At] = {}
        for start in starts:
            found.update({each.node: each for each in self.program.made_of(_receiver(start))})
        return list(found.values())


Search = Callable[[Case], Iterable[At]]


def _receiver(start: At) -> At:
    """Of `loss.backward()`, the loss; of `scaler.scale(loss).backward()` and `accelerator.backward(loss)` too."""
    for node in ast.walk(start.node):
        if isinstance(node, ast.Call) and name_of_call(node) == "backward" and isinstance(node.func, ast.Attribute):
            return start.other(node.args[0] if node.args and isinstance(node.args[0], ast.Name) else node.func.value)
    return start


def name(at: At) -> str:
    return name_of_call(at.node) if isinstance(at.node, ast.Call) else ""


def called(case: Case, *names: str) -> list[At]:
    """The calls of a function or method of one of these names."""
    return case.near(each for each in case.program.calls if name(each) in names)


def flowing(case: Case, *names: str) -> list[At]:
    """Those that the value on the named line is made of."""
    return [each for each in case.flow if name(each) in names]


def line(case: Case) -> list[At]:
    """The line that the rule named."""
    return [case.start] if case.start is not None else []
