"""Every check explains itself under fixed headings; its page in docs/checks, and the list there, are made from that."""

import ast
import inspect
import re
import sys
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pytest

from surefoot.checks.registry import CHECKS
from surefoot.reports.console import as_text
from surefoot.reports.parts import finding_text
from tests.checks.programs import TWENTY, all_twins

HEADINGS = ("## What it does", "## Why it hurts", "## Buggy", "## Fixed", "## What looks like it and is fine")
SHOWN = "## What it prints\nOf a small program with this bug, in the test of this check:\n\n```text\n"
TWINS = all_twins()
PAGES = Path(__file__).parents[3] / "docs" / "checks"
STALE = "run pytest tests/checks/engine/test_pages.py --update-golden"


def module_of(name: str) -> ModuleType:
    return sys.modules[CHECKS[name].__module__]


def subject_of(name: str) -> str:
    """The folder of its rule: surefoot.checks.saved_state.rules.pickled_module is of saved_state."""
    return module_of(name).__name__.split(".")[2]


def page(name: str, printed: str = "") -> str:
    """What the check says of itself, its severity, what it prints, and how to silence it."""
    title, _, text = module_of(name).__doc__.partition("\n")
    before, buggy, after = text.partition(HEADINGS[2])
    shown = f"{SHOWN}{printed}```\n\n" if printed else ""
    silent = f'`--allow {name}` at `surefoot watch` and `surefoot check`, `allow=["{name}"]` in Python.'
    silenced = f"\n## How to silence it\nIf you mean it: {silent}\n"
    return f"# {title}\n\n**Severity:** {severities(name)}\n{before}{shown}{buggy}{after}{silenced}"


def kept_sample(name: str) -> str:
    """The sample in its page; empty if it has none."""
    return path_of(name).read_text(encoding="utf-8").partition(SHOWN)[2].partition("```")[0]


def sample(name: str) -> str:
    """What is printed of its buggy twin; nothing of a check of several ranks, which has none."""
    if name not in TWINS:
        return ""
    printed = as_text(finding_text(TWINS[name](True).findings[0]), width=80).strip("\n") + "\n"
    return re.sub(r"\S*/(\w+\.py)", r"\1", printed)


def path_of(name: str) -> Path:
    return PAGES / subject_of(name).replace("_", "-") / f"{name}.md"


def finds(name: str) -> str:
    """The first sentence of what it does, without its verb: the table says it for all."""
    text = " ".join(page(name).partition(HEADINGS[0])[2].split(HEADINGS[1])[0].split())
    sentence = re.split(r"(?<=[.?!])\s", text)[0].rstrip(".")
    return re.sub(r"^(Reports|Finds|Mentions) ", "", sentence).replace("|", r"\|")


def severities(name: str) -> str:
    """Every severity that its findings may have, read from its source; none is named twice."""
    tree = ast.parse(inspect.getsource(module_of(name)))
    named = {leaf.value for leaf in ast.walk(tree) if isinstance(leaf, ast.Constant)}
    return " or ".join(each for each in ("error", "warning", "info") if each in named)


def index() -> str:
    """The list of all checks, by subject."""
    each = "Each has a page: what it prints, a buggy example, a fixed one, and what looks like it."
    about = f"{len(CHECKS)} checks, by subject. {each}"
    lines = ["# All checks", "", f"<!-- Made by `{STALE.removeprefix('run ')}`. -->", "", about]
    for subject, names in groupby(sorted(CHECKS, key=lambda name: (subject_of(name), name)), key=subject_of):
        title, _, about = import_module(f"surefoot.checks.{subject}").__doc__.strip().partition(": ")
        lines += [
            "",
            f"## {title}",
            "",
            about[0].upper() + about[1:],
            "",
            "| check | finds | severity |",
            "|---|---|---|",
        ]
        for name in names:
            link = path_of(name).relative_to(PAGES).as_posix()
            lines.append(f"| [{name}]({link}) | {finds(name)} | {severities(name)} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CHECKS)
def test_the_headings_stand_in_order(name: str):
    text = page(name)
    assert text.startswith(f"# {name}\n")
    assert sorted(HEADINGS, key=text.index) == list(HEADINGS)


@pytest.mark.parametrize("name", CHECKS)
def test_the_page_is_made_from_the_check(name: str, request: pytest.FixtureRequest):
    path = path_of(name)
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(name, sample(name)), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(name, kept_sample(name)), STALE
    assert bool(kept_sample(name)) == (name in TWINS), STALE


@pytest.mark.parametrize("name", TWENTY)
def test_a_sample_is_what_is_printed_today(name: str):
    shown, today = (re.sub(r"\.py:\d+", ".py:N", text) for text in (kept_sample(name), sample(name)))
    assert shown == today, STALE


def test_the_list_names_every_check_with_its_severity(request: pytest.FixtureRequest):
    assert all(map(severities, CHECKS))
    if request.config.getoption("--update-golden"):
        (PAGES / "index.md").write_text(index(), encoding="utf-8")
    assert (PAGES / "index.md").read_text(encoding="utf-8") == index(), STALE


def test_no_page_is_left_of_a_check_that_is_gone():
    assert set(PAGES.rglob("*.md")) == {path_of(name) for name in CHECKS} | {PAGES / "index.md"}
