"""Marks: the lines of the user's source that a finding is about, the cause first."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from surefoot.checks.causes import CAUSES, PARTNERS, Wanted
from surefoot.checks.edits import certain_edit
from surefoot.checks.engine.attempts import attempt
from surefoot.records.finding import Finding, Findings, Mark
from surefoot.source.at_fault import case as here
from surefoot.source.at_fault import losses, modules
from surefoot.source.at_fault.case import Case
from surefoot.source.imports import with_imports
from surefoot.source.program import At, Program

_LINE = re.compile(r"(.+?):(\d+)(?: \(.+\))?")
_NAMED: tuple[Wanted, ...] = (("", here.line), ("", modules.definition), ("", modules.the_class))


def marked(found: Findings, source: str) -> Findings:
    """The findings, each with the lines at fault. `source` is the script; it is read once for all of them."""
    if not found.findings:
        return found
    lines = (_LINE.fullmatch(each.where) for each in found.findings)
    program = Program(with_imports([source, *(line[1] for line in lines if line)]))
    return replace(found, findings=tuple(_tried(each, program) for each in found.findings))


def loss_line(where: str, source: str) -> str:
    """The line that computes the loss of a backward, by the line of the backward; that itself if it is not found."""
    line = _LINE.fullmatch(where)
    if line is None:
        return where
    case = Case(Program(with_imports([source, line[1]])), line[1], int(line[2]), "", "")
    found = next((each for each in losses.loss(case) if each.line), None)
    return where if found is None else f"{found.file}:{found.line}"


def _tried(finding: Finding, program: Program) -> Finding:
    """A finding whose lines could not be found stays as it is: it is worth more than its place."""
    found = finding
    with attempt(f"the lines of {finding.check}"):
        found = _marked(finding, program)
    return found


def _marked(finding: Finding, program: Program) -> Finding:
    line = _LINE.fullmatch(finding.where)
    file, number = (line[1], int(line[2])) if line else ("", 0)
    case = Case(program, file, number, "" if line else finding.where, finding.seen)
    cause, label = next(_places((*CAUSES.get(finding.check, ()), *_NAMED), case), (None, ""))
    if cause is None:
        return finding
    partner = _places((PARTNERS[finding.check],) if finding.check in PARTNERS else (), case)
    second = next((mark(*each) for each in partner if each[0].line != cause.line), None)
    where = f"{cause.file}:{cause.line}{finding.where[line.end(2) :]}" if line else finding.where
    marks = (mark(cause, label), *([second] if second is not None else []))
    return replace(finding, where=where, marks=marks, edit=certain_edit(finding.check, case, cause))


def _places(wanted: Iterable[Wanted], case: Case) -> Iterator[tuple[At, str]]:
    """Everything that is found, in the order in which it is wanted."""
    return ((at, label) for label, search in wanted for at in search(case) if at.line)


def mark(at: At, label: str) -> Mark:
    """A node as the part of a line: of several lines the first, of a block its head."""
    node: ast.AST = at.node
    code = linecache.getline(at.file, at.line).rstrip("\n")
    first, last = _column(code, getattr(node, "col_offset", 0)), len(code)
    if getattr(node, "end_lineno", 0) == at.line and not isinstance(node, ast.Module):
        last = _column(code, getattr(node, "end_col_offset", 0))
    return Mark(at.file, at.line, first, last, code, label)


def _column(code: str, offset: int) -> int:
    """Counts characters, where Python's parser counts bytes."""
    return len(code.encode()[:offset].decode(errors="ignore"))
