"""Every check explains itself under fixed headings, and its page in docs/checks is made from that."""

import sys
from pathlib import Path

import pytest

from surefoot.checks.registry import CHECKS

HEADINGS = ("## What it does", "## Why it hurts", "## Buggy", "## Fixed", "## What looks like it and is fine")


def page(name: str) -> str:
    return "# " + sys.modules[CHECKS[name].__module__].__doc__


@pytest.mark.parametrize("name", CHECKS)
def test_the_headings_stand_in_order(name: str):
    text = page(name)
    assert text.startswith(f"# {name}\n")
    assert sorted(HEADINGS, key=text.index) == list(HEADINGS)


PAGES = Path(__file__).parents[3] / "docs" / "checks"


@pytest.mark.parametrize("name", CHECKS)
def test_the_page_is_made_from_the_check(name: str, request: pytest.FixtureRequest):
    path = PAGES / f"{name}.md"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(name), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(name), "run pytest --update-golden to write the page anew"


def test_no_page_is_left_of_a_check_that_is_gone():
    assert {path.stem for path in PAGES.glob("*.md")} == set(CHECKS)
