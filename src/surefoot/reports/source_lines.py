"""Lines of the user's source as text: the part at fault marked, and a line before and after an edit."""

import os
from collections.abc import Sequence

from rich.text import Text

from surefoot.records.finding import Edit, Mark

_LONGEST = 100
"""The most characters of a line that are shown. Of a longer one, the part around the mark."""
_ROOM = 70
"""A label that would end behind this column stands on a line of its own."""
_BEFORE = 24
"""Characters shown before the mark in a line that is cut."""


def place_text(file: str, line: int) -> str:
    """A line of a file, for people: below the working directory it is named from there."""
    below = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return f"{below}:{line}"


def marked_lines(marks: Sequence[Mark]) -> list[Text]:
    """Each marked line with its number, and what it does in the bug under the marked part."""
    if not marks:
        return []
    width = len(str(max(each.line for each in marks)))
    lines = []
    for number, each in enumerate(marks):
        if not number or each.file != marks[number - 1].file:
            lines.append(
                Text.assemble(("  --> " if not number else "  ::: ", "blue"), place_text(each.file, each.line))
            )
        lines += _marked_line(each, width, "^" if not number else "-")
    return [_whole(each) for each in lines]


def _marked_line(mark: Mark, width: int, sign: str) -> list[Text]:
    code, first, last = _window(mark)
    colour = "red" if sign == "^" else "blue"
    gutter = Text.assemble((f"  {mark.line:>{width}} | ", "blue"), code)
    empty, label = Text(f"  {'':{width}} | ", "blue"), Text(mark.label, colour)
    under = empty + Text(" " * first) + Text(sign * max(1, last - first), colour)
    if not mark.label or last + len(mark.label) < _ROOM:
        return [gutter, under.append_text(Text(" ") + label if mark.label else Text())]
    return [gutter, under, empty + Text(" " * max(0, min(first, _ROOM - len(mark.label)))) + label]


def _window(mark: Mark) -> tuple[str, int, int]:
    """The line without its indentation, cut around the mark if it is very long; and the marked part of that."""
    left = min(len(mark.code) - len(mark.code.lstrip()), mark.first)
    cut = mark.first - _BEFORE if mark.last - left > _LONGEST and mark.first - left > _BEFORE else left
    start = "…" if cut > left else ""
    code = start + mark.code[cut:].expandtabs(1)
    first, last = mark.first - cut + len(start), min(mark.last - cut + len(start), _LONGEST)
    return (code if len(code) <= _LONGEST else code[: _LONGEST - 1] + "…"), first, last


def changed_line(edit: Edit) -> Text:
    """The line before an edit and after it, as in a diff."""
    sides = (("-", edit.before, "red"), ("+", edit.after, "green"))
    return Text("\n").join(Text(f"{edit.line} {sign} {line.strip()}", style) for sign, line, style in sides if line)


def _whole(line: Text) -> Text:
    """One line of the terminal: code that wraps cannot be read."""
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
