"""The tree in docs is made from the first sentences of folders and files; every file has one."""

import ast
import re
from pathlib import Path

import pytest

import surefoot

PACKAGE = Path(surefoot.__file__).parent
DOCS = Path(__file__).parent.parent / "docs" / "how"
WIDTH = 120


def first_sentence(file: Path) -> str:
    """Of a module's docstring. A rule opens with its name: there it is what the rule does."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    if file.parent.name == "rules" and file.name != "__init__.py":
        text = text.partition("## What it does\n")[2]
    return re.split(r"(?<=[.?!])\s", " ".join(text.split("\n\n")[0].split()))[0].rstrip(".")


def folders() -> list[Path]:
    return sorted({file.parent for file in PACKAGE.rglob("*.py")} - {PACKAGE})


def files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")


def line(depth: int, name: str, text: str) -> str:
    whole = f"{'    ' * depth}{name:{max(2, 24 - 4 * depth)}}  {text}".rstrip()
    return whole if len(whole) <= WIDTH else whole[: WIDTH - 1].rsplit(" ", 1)[0] + " …"


def short_tree() -> str:
    """Folders, and the files of the package itself."""
    lines = [line(0, file.name, first_sentence(file)) for file in files_in(PACKAGE)]
    for folder in folders():
        inside = folder.relative_to(PACKAGE)
        if folder.name != "rules":
            lines.append(line(len(inside.parts) - 1, f"{folder.name}/", first_sentence(folder / "__init__.py")))
    return "\n".join(lines)


def whole_tree() -> str:
    """Every file by its folder."""
    lines = ["# Every file of surefoot", "", "Made by `pytest tests/test_architecture.py --update-golden`.", ""]
    for folder in (PACKAGE, *folders()):
        lines += [f"## {folder.relative_to(PACKAGE.parent).as_posix()}", "", first_sentence(folder / "__init__.py"), ""]
        lines += ["| file | what it is |", "|---|---|"]
        lines += [f"| {file.name} | {first_sentence(file).replace('|', chr(92) + '|')} |" for file in files_in(folder)]
        lines.append("")
    return "\n".join(lines)


def test_the_tree_in_the_docs_is_that_of_the_package(request: pytest.FixtureRequest):
    page = DOCS / "architecture.md"
    text = page.read_text(encoding="utf-8")
    before, tree, after = re.split(
        r"(?<=\[tree\.md\]\(tree\.md\) lists every file\.\n\n```\n)(.*?)(?=\n```)", text, maxsplit=1, flags=re.S
    )
    if request.config.getoption("--update-golden"):
        page.write_text(before + short_tree() + after, encoding="utf-8")
        (DOCS / "tree.md").write_text(whole_tree(), encoding="utf-8")
        tree = short_tree()
    assert tree == short_tree(), "run pytest tests/test_architecture.py --update-golden"
    assert (DOCS / "tree.md").read_text(encoding="utf-8") == whole_tree(), "run it with --update-golden"


@pytest.mark.parametrize("folder", [PACKAGE, *folders()], ids=lambda folder: folder.name)
def test_every_folder_and_file_says_what_it_is(folder: Path):
    for file in (folder / "__init__.py", *files_in(folder)):
        assert len(first_sentence(file).split()) >= 2, f"{file} does not open with a sentence"


def test_the_root_holds_few_files():
    assert len(list(PACKAGE.glob("*.py"))) <= 9
    assert len([each for each in folders() if each.parent == PACKAGE]) <= 24
