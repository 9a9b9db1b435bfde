"""What a newcomer sees first: one pitch, commands and guide in the same groups, pictures that agree with the text."""

import re
from pathlib import Path

import pytest
import tomllib
import yaml
from typer.testing import CliRunner

from surefoot.cli.groups import GROUPS
from surefoot.cli.main import app
from surefoot.cli.main import surefoot as front
from tests.replay import commands, missing

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FIRST_PAGES = [DOCS / "guide" / f"{name}.md" for name in ("start", "watch", "plan-a-script", "plan", "check", "train")]
PAGES = [ROOT / "README.md", DOCS / "index.md", *(DOCS / "guide").glob("*.md"), *(DOCS / "how").glob("*.md")]
PITCH = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
TEXTS = [path.read_text(encoding="utf-8").splitlines() for path in (DOCS / "pictures").glob("*.txt")]
PICTURES = {typed.removeprefix("$ "): printed for typed, *printed in TEXTS}
"""What each pictured command printed."""


def first_sentence(page: Path) -> str:
    """The first paragraph that is no heading and no front matter, without emphasis."""
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    paragraph = next(part for part in text.split("\n\n") if part.strip() and not part.strip().startswith("#"))
    return " ".join(paragraph.replace("**", "").split())


@pytest.mark.parametrize(
    "told",
    [
        first_sentence(ROOT / "README.md"),
        first_sentence(DOCS / "index.md"),
        " ".join((front.__doc__ or "").split()),
        yaml.safe_load((DOCS / "mkdocs.yml").read_text())["site_description"],
        " ".join(yaml.safe_load((ROOT / "CITATION.cff").read_text())["abstract"].split()),
    ],
    ids=["README", "site", "help", "search engines", "citation"],
)
def test_there_is_one_pitch(told: str):
    assert told == PITCH
    assert re.fullmatch(r"[^.]+\.", PITCH), "one sentence"


def test_the_guide_has_the_groups_of_the_help():
    headings = re.findall(r"^## (.+)$", (DOCS / "guide" / "index.md").read_text(), flags=re.MULTILINE)
    assert headings == ["Start here", *GROUPS]


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md", *FIRST_PAGES], ids=lambda page: page.stem)
def test_words_of_our_own_are_explained_before_they_are_used(page: Path):
    words = re.findall(r"\b(account|ledger|tally|tallies|booked)s?\b", page.read_text(encoding="utf-8"), flags=re.I)
    code = re.findall(r"`[^`]*\b(account|ledger|tally)s?\b[^`]*`", page.read_text(encoding="utf-8"))
    explained = "*account*" in page.read_text(encoding="utf-8")
    assert explained or len(words) == len(code), words


@pytest.mark.parametrize("command", [[], *([name] for names in GROUPS.values() for name in names)], ids=" ".join)
def test_the_help_uses_no_words_of_our_own(command: list[str]):
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).output
    assert not re.findall(r"\b(accounts?|ledger|tally|tallies|booked)\b", shown)


def test_a_plan_of_a_script_comes_right_after_watching_one():
    pages = re.findall(r"\((\S+)\.md\)", (DOCS / "guide" / "index.md").read_text())
    assert pages[pages.index("watch") + 1] == "plan-a-script"


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "guide" / "watch.md"], ids=["README", "watch"])
def test_pictures_show_what_the_text_says(page: Path):
    shown = [(typed, lines) for typed, lines, _ in commands(page.read_text(encoding="utf-8")) if typed in PICTURES]
    assert shown
    for typed, lines in shown:
        assert missing(lines, PICTURES[typed]) == "", f"{typed}: run python docs/pictures.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_says_how_many_checks_there_are(page: Path):
    """A new check would make it wrong. The list of the checks counts them; its test writes it."""
    assert re.findall(r"\b\d{3,} (?:silent )?(?:checks|bugs)\b", page.read_text(encoding="utf-8")) == []


def test_the_files_that_contributing_names_are_there():
    named = re.findall(
        r"`([\w./-]+/[\w.-]*|[\w-]+\.(?:py|toml))`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    )
    assert len(named) > 20
    assert [name for name in named if not ((ROOT / name).exists() or (ROOT / "src" / "surefoot" / name).exists())] == []
