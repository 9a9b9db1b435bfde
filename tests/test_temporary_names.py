"""Nothing is written under a name in the temporary folder that others can guess: `tempfile` makes the names."""

import ast
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "bench", "docs", "examples", "corpus")
GUESSABLE = """
folder = Path(os.environ.get("TMPDIR", "/tmp"))
"/tmp/made"
Path(tempfile.gettempdir()) / "made"
os.path.join(tempfile.gettempdir(), "made")
f"{tempfile.gettempdir()}/made"
gettempdir() + "/made"
tempfile.mktemp()
Path(os.environ["TMPDIR"], "made")
os.getenv("TMP")
"""


def guessable(source: str) -> Iterator[int]:
    """The lines that name the temporary folder, except in a message or a docstring."""
    tree = ast.parse(source)
    allowed = {id(part) for node in ast.walk(tree) for part in _of_messages(node)}
    for node in ast.walk(tree):
        if id(node) not in allowed and (_is_folder(node) or _is_function(node)):
            yield node.lineno


def _is_folder(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    return node.value in ("/tmp", "TMPDIR", "TMP", "TEMP") or node.value.startswith(("/tmp/", "/var/tmp"))


def _is_function(node: ast.AST) -> bool:
    name = getattr(node, "attr", None) or getattr(node, "id", None)
    return name in ("gettempdir", "gettempdirb", "mktemp")


def _of_messages(node: ast.AST) -> Iterator[ast.AST]:
    """What an f-string shows between other words. One in which a slash follows the folder is a path."""
    if isinstance(node, ast.JoinedStr):
        for part, after in zip(node.values, [*node.values[1:], None], strict=True):
            if not (isinstance(after, ast.Constant) and str(after.value).startswith("/")):
                yield from ast.walk(part)


@pytest.mark.sweep
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_source_writes_to_a_name_that_others_can_guess(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [f"{file.relative_to(ROOT)}:{line}" for file in files for line in guessable(file.read_text())]
    assert found == []


@pytest.mark.parametrize("line", GUESSABLE.strip().splitlines())
def test_such_a_name_is_seen(line):
    assert list(guessable(line))


def test_a_message_may_name_the_folder():
    assert not list(guessable('print(f"is {tempfile.gettempdir()} full?")'))
    assert not list(guessable("with tempfile.TemporaryDirectory() as folder: pass"))


def test_measuring_follows_no_link_in_the_temporary_folder(tmp_path, monkeypatch):
    from surefoot.planning.timing import measure

    precious, link = tmp_path / "precious", tmp_path / f"surefoot-measure-{os.getpid()}"
    precious.write_text("as it was")
    link.symlink_to(precious)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(measure, "SENT_BYTES", 1 << 10)
    assert measure._sent_bytes_per_second(1) > 0
    assert (precious.read_text(), link.is_symlink()) == ("as it was", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", link.name]
