"""What holds for the tests themselves: none imports from another, and none sleeps where it could wait."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))


def modules_named_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each module that is imported, also as a name out of its package or with dots, and its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{package}.{alias.name}") for alias in node.names)


def imports_of_tests(text: str, files: frozenset[str]) -> list[str]:
    """The imports out of test files; a name in a module, such as a function `test_...`, counts for its module."""
    return [
        f"line {line}: {module}"
        for line, module in modules_named_in(ast.parse(text))
        if any(part in files for part in module.split("."))
    ]


def test_no_test_file_is_imported_by_another():
    """Two tests share what stands in a helper file: one of them can then be moved, left out and read alone."""
    files = frozenset(file.stem for file in FILES if file.name.startswith("test_"))
    found = {file.relative_to(TESTS).as_posix(): imports_of_tests(file.read_text("utf-8"), files) for file in FILES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from tests.ways.test_resume import told",
        "from tests.ways import test_resume",
        "from .test_resume import told",
        "def f():\n    import tests.ways.test_resume as t",
    ],
)
def test_an_import_of_a_test_file_is_found(text: str):
    assert imports_of_tests(text, frozenset({"test_resume"}))
    assert not imports_of_tests(text.replace("test_resume", "resumed"), frozenset({"test_resume"}))


ALLOWED = "# time itself: "


def sleeps_in(text: str) -> list[str]:
    """Calls of `time.sleep` and its like on whose lines no comment says why time itself is the subject."""
    lines = text.splitlines()
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    sleeping = (node for node in calls if ast.unparse(node.func).rpartition(".")[2] == "sleep")
    return [f"line {node.lineno}" for node in sleeping if ALLOWED not in lines[node.lineno - 1]]


def test_no_test_sleeps_where_it_could_wait_for_a_condition():
    """`tests.waiting.until` waits. Programs that tests write as text are not read: most sleep until they are killed."""
    found = {file.relative_to(TESTS).as_posix(): sleeps_in(file.read_text("utf-8")) for file in FILES}
    assert {name: lines for name, lines in found.items() if lines and name != "waiting.py"} == {}


@pytest.mark.parametrize("call", ["time.sleep(1)", "sleep(1)", "asyncio.run(asyncio.sleep(1))"])
def test_a_sleep_without_a_reason_is_found(call: str):
    assert sleeps_in(call) == ["line 1"]
    assert sleeps_in(f"{call}  # a moment") == ["line 1"]
    assert not sleeps_in(f"{call}  {ALLOWED}what is measured")
