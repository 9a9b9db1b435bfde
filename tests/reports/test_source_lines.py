"""Marked lines in the terminal: the number, the line, the part at fault, and the change."""

from rich.console import Group
from rich.text import Text

from surefoot.records.finding import Edit, Finding, Findings, Mark
from surefoot.reports.console import as_text
from surefoot.reports.findings import findings_text
from surefoot.reports.source_lines import changed_line, marked_lines

FIRST = Mark("/own/net.py", 9, 15, 28, "        return F.softmax(x)", "the first softmax")
SECOND = Mark("/own/net.py", 120, 11, 26, "    loss = cross_entropy(y)", "again")


def plain(*lines: Text) -> list[str]:
    return [line.rstrip() for line in as_text(Group(*lines)).splitlines()]


def test_the_cause_is_underlined_and_its_partner_too() -> None:
    assert plain(*marked_lines([FIRST, SECOND])) == [
        "  --> /own/net.py:9",
        "    9 | return F.softmax(x)",
        "      |        ^^^^^^^^^^^^^ the first softmax",
        "  120 | loss = cross_entropy(y)",
        "      |        --------------- again",
    ]


def test_a_partner_in_another_file_is_named_with_its_file() -> None:
    other = Mark("/own/train.py", 2, 0, 4, "loss", "")
    assert plain(*marked_lines([FIRST, other]))[3:] == ["  ::: /own/train.py:2", "  2 | loss", "    | ----"]


def test_of_a_very_long_line_the_part_around_the_mark_is_shown() -> None:
    code = "x = " + "a + " * 60 + "bad + " + "c + " * 60
    _, line, under = plain(*marked_lines([Mark("/own/a.py", 1, code.index("bad"), code.index("bad") + 3, code)]))
    assert len(line) < 120
    assert line[under.index("^") : under.rindex("^") + 1] == "bad"


def test_a_label_without_room_stands_on_a_line_of_its_own() -> None:
    code = "a" * 60
    shown = plain(*marked_lines([Mark("/own/a.py", 1, 0, 60, code, "a long label of a line")]))
    assert shown[2:] == ["    | " + "^" * 60, "    | a long label of a line"]


def test_a_change_shows_the_line_before_and_after() -> None:
    assert plain(changed_line(Edit("a.py", 3, "  old", "  new"))) == ["3 - old", "3 + new"]
    assert plain(changed_line(Edit("a.py", 3, "", "  new"))) == ["3 + new"]
    assert plain(changed_line(Edit("a.py", 3, "  old", ""))) == ["3 - old"]


def test_the_last_line_can_be_read_alone() -> None:
    finding = Finding("softmax-before-cross-entropy", "error", "s", "Net", "w", "r", (FIRST, SECOND))
    shown = as_text(findings_text(Findings("a.py", ("x",), (finding,), examined=("3 updates",))))
    assert (
        shown.rstrip().splitlines()[-1] == "a.py: 1 finding by 1 check: softmax-before-cross-entropy at /own/net.py:9."
    )
